"""What holds for a group: what its object says, or else what its members say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from subak.batch.gangs import koordinator
from subak.batch.gangs.membership import Membership
from subak.model.group import Group, Words


@dataclass(frozen=True, slots=True)
class Terms:
    """How many of a group start together, and how long a part of it may run alone.

    `warnings` name what its members do not agree on, and what means something else here than elsewhere.
    """

    min_member: int
    min_roles: Mapping[str, int] = field(default_factory=dict)
    timeout: float | None = None
    warnings: tuple[str, ...] = ()


def agreed(members: Iterable[Membership], group: Group | None = None) -> Terms | None:
    """What holds for a group of these members; None if its object must say so, and is not there.

    The order of members does not matter, nor how often one comes.  If an object says how many, that counts; if only
    pods do and they differ, the largest numbers count.
    """
    distinct = sorted(set(members), key=_in_order)
    stated = sorted({each.min_member for each in distinct if each.min_member is not None})
    warnings = [f"{each.name}: {warning}" for each in distinct for warning in each.warnings]
    timeout = max((each.timeout for each in distinct if each.timeout is not None), default=None)
    if group is not None:
        warnings += [
            f"{group.key}: its members say that {number} start together, its PodGroup {group.min_member}, which counts"
            for number in stated
            if number != group.min_member
        ]
        warnings += group.warnings
        if group.words == Words.KOORDINATOR:
            warnings += [f"{group.key}: {doubt}" for doubt in koordinator.doubts(group.annotations)]
        found = group.timeout if group.timeout is not None else timeout
        return Terms(group.min_member, group.min_roles, found, _once(warnings))
    if not stated:
        return None
    roles: dict[str, int] = {}
    for each in distinct:
        for role, number in each.min_roles:
            roles[role] = max(roles.get(role, 0), number)
    warnings += _contradictions(distinct)
    return Terms(sum(roles.values()) if roles else stated[-1], roles, timeout, _once(warnings))


def _contradictions(members: Iterable[Membership]) -> list[str]:
    """A sentence for each gang whose members say different minimums."""
    said: dict[str, set[int]] = {}
    for each in members:
        own = dict(each.min_roles).get(each.role, each.min_member)
        if own is not None:
            said.setdefault(each.role or each.name, set()).add(own)
    return [
        f"{gang}: its members do not agree on how many start together, "
        f"{' or '.join(map(str, sorted(numbers)))}; {max(numbers)} counts"
        for gang, numbers in sorted(said.items())
        if len(numbers) > 1
    ]


def _in_order(member: Membership) -> tuple[object, ...]:
    return (
        member.words,
        member.name,
        member.role,
        -1 if member.min_member is None else member.min_member,
        member.min_roles,
        -1.0 if member.timeout is None else member.timeout,
        member.warnings,
    )


def _once(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentences))
