"""Whole cards by the node's partition table: sets of cards that are wired together (Koordinator's).

    groups of equal score, the highest first; of a group that partition which leaves most, counted as the sum over
    all partitions still wholly free, as large as the one asked for or larger, of  {8: 10000, 4: 100, 2: 1} x score

Of equal ones the first in the table wins.  The table must be obeyed if the pod demands a partition or the node honours
its table; otherwise it is a preference.  (Koordinator documents the highest score first, and tries the lowest.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subak.model.card import CardState
from subak.model.device import Partition, PartitionTable
from subak.model.request import Claim, Partitioning
from subak.policy import tree

WORTH = {8: 10_000, 4: 100, 2: 1}

_NONE = PartitionTable()


def table_of(cards: Sequence[CardState]) -> PartitionTable:
    """The table of the node that has these cards; an empty one if it has none."""
    for card in cards:
        if card.device.partitions is not None:
            return card.device.partitions
    return _NONE


def required(claim: Claim, cards: Sequence[CardState]) -> bool:
    """Whether the claim gets a partition of the node's table, or nothing."""
    wanted = claim.policy.partition
    return wanted is not None and (wanted.required or table_of(cards).honor)


def exists(claim: Claim, cards: Sequence[CardState]) -> bool:
    """Whether the table has a partition for the claim, in use or not."""
    return any(_groups(claim, cards))


def choose(passed: Sequence[CardState], claim: Claim, cards: Sequence[CardState]) -> list[CardState] | None:
    """The cards of the best free partition, in its order.

    If there is none: no cards where the table must be obeyed, and None where the choice is free.
    """
    if table_of(cards) is _NONE and not required(claim, cards):
        return None
    for group in _groups(claim, cards):
        members = [found for each in group if (found := _members(each, passed, claim)) is not None]
        if members:
            return max(members, key=lambda chosen: _left(chosen, claim, cards))
    return [] if required(claim, cards) else None


def admits(chosen: Sequence[CardState], claim: Claim, cards: Sequence[CardState]) -> bool:
    """Whether exactly these cards may be given: any, unless the table must be obeyed."""
    if not required(claim, cards):
        return True
    return any(_members(each, chosen, claim) is not None for group in _groups(claim, cards) for each in group)


def _groups(claim: Claim, cards: Sequence[CardState]) -> Iterator[list[Partition]]:
    """The partitions of the size and bandwidth asked for, the best score first; only the best if restricted."""
    wanted = claim.policy.partition or Partitioning()
    sized = [each for each in table_of(cards).partitions if len(each.minors) == claim.count]
    for score in sorted({each.score for each in sized}, reverse=True):
        yield [each for each in sized if each.score == score and each.bandwidth >= wanted.bandwidth]
        if wanted.restricted:
            return


def _members(partition: Partition, passed: Sequence[CardState], claim: Claim) -> list[CardState] | None:
    """The partition's cards; None unless all are among those that passed, idle, and within the scope demanded."""
    idle = {card.device.minor: card for card in passed if not card.used}
    found = [idle[minor] for minor in partition.minors if minor in idle]
    return found if len(found) == len(partition.minors) and tree.within(found, claim.policy.scope) else None


def _left(chosen: Sequence[CardState], claim: Claim, cards: Sequence[CardState]) -> int:
    """What stays possible once these cards are gone."""
    taken = {card.device.minor for card in chosen}
    idle = {card.device.minor for card in cards if card.device.healthy and not card.used} - taken
    return sum(
        WORTH.get(len(each.minors), 0) * each.score
        for each in table_of(cards).partitions
        if len(each.minors) >= claim.count and idle.issuperset(each.minors)
    )
