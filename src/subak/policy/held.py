"""What a bound pod holds: it depends only on the pod and its node, not on other pods or on the order of events.

    the record says       and the pod asks for      so it holds
    a card of the node    no more than that         what the record says
    a card of the node    more than that            what it asks for: a record never counts for less
    nothing readable      a share of a card         that share of every card that it may hold
    a card not there      a share of a card         the same: the card may go by another id now

Counting a pod on several cards is safe: it really uses one of them, and nothing is promised there.  As soon as the
record can be read, or the node's cards have the ids that it names, the pod counts where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Grant, Placement, Share, uncut
from subak.model.request import Claim, Request
from subak.snapshot.cluster import Resources


class Holding(msgspec.Struct, frozen=True, gc=False):
    """What a pod holds.

    `known` says whether its record names its cards; `warnings` what was not as it should be.  `counted` is the
    placement with no more cards than the pod asks for: what a quota counts.
    """

    placement: Placement
    counted: Placement
    resources: Resources
    known: bool = True
    warnings: tuple[str, ...] = ()


def held(interpreter: Interpreter, pod: manifest.Pod, node: Node) -> Holding:
    """What the pod holds on this node.  Never raises."""
    warnings: list[str] = []
    try:
        request = interpreter.request(pod)
    except ValueError as error:
        warnings.append(f"pod {pod.key}: {error}; what it asks for is unknown")
        request = Request()
    recorded, problems = interpreter.grants(pod, node)
    if not problems and _tells_all(recorded, request.claims, node):
        placement = Placement(node.name, recorded)
        return Holding(placement, placement, request.needs.resources, True, tuple(warnings))
    warnings += [f"pod {pod.key}: {problem}; which cards it holds is unknown" for problem in problems]
    grants, counted = list(recorded), list(recorded)
    unclaimed = list(range(len(recorded)))
    known = True
    for claim in request.claims:
        at = next((i for i in unclaimed if _answers(recorded[i], claim, node)), None)
        given = None if at is None else recorded[at]
        completed = _completed(claim, given, node)
        likely = completed
        if completed is not given and not _on_its_cards(completed, given):
            known = False
            warnings.append(_uncertain(pod, node, given, completed))
            likely = msgspec.structs.replace(completed, shares=completed.shares[: claim.count])
        if at is None:
            grants.append(completed)
            counted.append(likely)
        else:
            unclaimed.remove(at)
            grants[at], counted[at] = completed, likely
    for at in unclaimed:
        grants[at] = widened = _widened(recorded[at], interpreter.by_name[recorded[at].dialect].families, node)
        if widened is not recorded[at]:
            known = False
            warnings.append(_uncertain(pod, node, recorded[at], widened))
    placement = _placement(node, grants)
    to_count = placement if known else _placement(node, counted)
    return Holding(placement, to_count, request.needs.resources, known, tuple(warnings))


def _tells_all(recorded: Sequence[Grant], claims: Sequence[Claim], node: Node) -> bool:
    """Whether the record gives each claim in turn all that it asks for, on cards of the node: so it is, as a rule."""
    return len(recorded) == len(claims) and all(map(_gives, recorded, claims, repeat(node)))


def _gives(grant: Grant, claim: Claim, node: Node) -> bool:
    if grant.dialect != claim.dialect or grant.containers != claim.containers or len(grant.shares) < claim.count:
        return False
    for share in grant.shares:
        device = node.device(share.id)
        if (
            device is None
            or device.family not in claim.families
            or share.memory_bytes < claim.memory_on(device)
            or share.cores < claim.cores
            or _larger(share.extras, claim.extras) != share.extras
        ):
            return False
    return bool(grant.shares)


def _placement(node: Node, grants: Iterable[Grant]) -> Placement:
    return Placement(node.name, tuple([grant for grant in grants if grant.shares]))


def _answers(grant: Grant, claim: Claim, node: Node) -> bool:
    """Whether the grant is what the claim got: by dialect, containers, and the kind of card asked for."""
    if grant.dialect != claim.dialect or grant.containers != claim.containers:
        return False
    strangers = False
    for share in grant.shares:
        device = node.device(share.id)
        if device is not None:
            if device.family in claim.families:
                return True
            strangers = True
    return not strangers


def _completed(claim: Claim, given: Grant | None, node: Node) -> Grant:
    """The grant with at least what the claim asks for; on every possible card if the record does not name all."""
    recorded = () if given is None else given.shares
    shares: list[Share] = []
    lost: list[Share] = []
    for share in recorded:
        device = node.device(share.id)
        if device is None:
            lost.append(share)
        else:
            shares.append(_at_least(share, claim, device))
    if len(shares) < claim.count or lost:
        seen = {share.id for share in shares}
        shares += [_whole(claim, lost, device) for device in _possible(claim, node) if device.id not in seen]
    if given is None:
        return Grant(claim.dialect, claim.containers, claim.role, tuple(shares), claim.rules.tag, claim.slotted)
    return given if tuple(shares) == recorded else msgspec.structs.replace(given, shares=tuple(shares))


def _at_least(share: Share, claim: Claim, device: Device) -> Share:
    """A share of the record; never less than what was asked for."""
    memory, cores = max(share.memory_bytes, claim.memory_on(device)), max(share.cores, claim.cores)
    extras = _larger(share.extras, claim.extras)
    if (memory, cores, extras) == (share.memory_bytes, share.cores, share.extras):
        return share
    return msgspec.structs.replace(share, memory_bytes=memory, cores=cores, extras=extras)


def _whole(claim: Claim, lost: Sequence[Share], device: Device) -> Share:
    """The claim's share of a card on which it may be; a record of more than was asked for counts too."""
    share = Share(
        device.id,
        device.index,
        max((each.memory_bytes for each in lost), default=0),
        max((each.cores for each in lost), default=0),
        mig=uncut(device),
    )
    return claim.rules.widest(_at_least(share, claim, device), device)


def _larger(one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    if one == other or not other:
        return one
    amounts = dict(one)
    for name, amount in other:
        amounts[name] = max(amount, amounts.get(name, 0))
    return tuple(amounts.items())


def _possible(claim: Claim, node: Node) -> list[Device]:
    """The cards that the claim may mean; if the user admits none of them, all of the vendor's."""
    kin = [device for device in node.devices if device.family in claim.families]
    selection = claim.selection
    admitted = [each for each in kin if selection.admits_id(each.id) and selection.admits_type(each.model)]
    return admitted or kin


def _widened(grant: Grant, families: frozenset[str], node: Node) -> Grant:
    """A grant that no claim explains: what it holds of cards that are not there counts on all of the dialect's."""
    lost = [share for share in grant.shares if node.device(share.id) is None]
    if not lost:
        return grant
    kept = [share for share in grant.shares if node.device(share.id) is not None]
    seen = {share.id for share in kept}
    memory, cores = max(each.memory_bytes for each in lost), max(each.cores for each in lost)
    kin = (each for each in node.devices if each.family in families and each.id not in seen)
    return msgspec.structs.replace(
        grant, shares=(*kept, *(Share(device.id, device.index, memory, cores) for device in kin))
    )


def _on_its_cards(completed: Grant, given: Grant | None) -> bool:
    return given is not None and _ids(completed.shares) == _ids(given.shares)


def _ids(shares: Iterable[Share]) -> list[str]:
    return [share.id for share in shares]


def _uncertain(pod: manifest.Pod, node: Node, given: Grant | None, grant: Grant) -> str:
    lost = [share.id for share in (() if given is None else given.shares) if node.device(share.id) is None]
    if lost:
        problem = f"has a record of {', '.join(lost)}, which {node.name} does not have"
    else:
        problem = f"does not say which cards of {node.name} it holds"
    cards = ", ".join(_ids(grant.shares)) or "none that the node has"
    return f"pod {pod.key} {problem}; counted on each that it may hold: {cards}"
