"""What a node lacks for a request, card by card: a quick look at whether it helps that some pods leave.

Like `columns` it knows amounts only.  What it calls enough may still be refused by the full rules, never the other way
round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from subak.model.card import CardState
from subak.model.device import FULL_CORES, MIG
from subak.model.placement import Charge
from subak.model.request import Claim, Request
from subak.policy.columns import least, representative
from subak.snapshot.cluster import Booking, Snapshot
from subak.snapshot.pool import CORES, IDLE, MEMORY, SLOTS

Lack = Mapping[int, int]
"""How much is missing, by row of `Pool.state`; nothing where a card has enough."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One claim: how many cards, and what each card that it could mean lacks.  `stacks`: a card may count as all."""

    count: int
    lacks: Mapping[str, Lack]
    stacks: frozenset[str] = frozenset()

    def met(self, relief: Mapping[str, Charge]) -> bool:
        """Whether enough cards have what it asks for, once this much is given back."""
        enough = 0
        for id, lack in self.lacks.items():
            if not lack or _covers(relief.get(id), lack):
                enough += self.count if id in self.stacks else 1
        return enough >= self.count


@dataclass(frozen=True, slots=True)
class Shortage:
    """What the whole request lacks on one node."""

    wanted: tuple[Wanted, ...]
    resources: Mapping[str, int]

    @classmethod
    def of(cls, snapshot: Snapshot, name: str, request: Request) -> Shortage:
        """What the node lacks as it is now."""
        home = snapshot.home(name)
        assert home is not None, "the node is there"
        pool, at = home
        cards = pool.cards(at)
        lacking = ((key, amount - pool.free(at, key)) for key, amount in request.needs.resources)
        return cls(
            tuple(_wanted(claim, cards) for claim in representative(request)),
            {key: amount for key, amount in lacking if amount > 0},
        )

    def met(self, leaving: Iterable[Booking]) -> bool:
        """Whether there may be room once these are gone."""
        relief: dict[str, Charge] = {}
        resources = dict(self.resources)
        for booking in leaving:
            for id, charge in booking.charges.items():
                relief[id] = _sum(relief[id], charge) if id in relief else charge
            if resources:
                for key, amount in booking.resources:
                    if key in resources:
                        resources[key] -= amount
        return all(left <= 0 for left in resources.values()) and all(each.met(relief) for each in self.wanted)

    def concerns(self, booking: Booking) -> bool:
        """Whether it could help that this pod leaves."""
        if any(key in self.resources for key, _ in booking.resources):
            return True
        return any(id in each.lacks for id in booking.charges for each in self.wanted)


def _wanted(claim: Claim, cards: Iterable[CardState]) -> Wanted:
    selection = claim.selection
    meant = [
        card
        for card in cards
        if card.device.family in claim.families
        and card.device.healthy
        and not card.device.cordoned
        and selection.admits_type(card.device.model)
        and selection.admits_mode(card.device.mode)
        and selection.admits_id(card.device.id)
    ]
    cut = frozenset(card.device.id for card in meant if card.device.mode == MIG)
    return Wanted(
        claim.count,
        {card.device.id: _lack(claim, card) for card in meant},
        cut if claim.instances else frozenset(),
    )


def _lack(claim: Claim, card: CardState) -> Lack:
    has = {SLOTS: card.slots_free, MEMORY: card.memory_free, CORES: card.cores_free, IDLE: -card.used}
    needs = dict(least(claim))
    if claim.memory_percent and not claim.memory_bytes:
        needs[MEMORY] = claim.memory_on(card.device)
    # All cores of a card mean the card alone, in HAMi's way.
    if claim.cores == FULL_CORES and claim.slotted and not claim.together and card.device.cores == FULL_CORES:
        needs[IDLE] = 0
    return {row: needs[row] - has[row] for row in needs if needs[row] > has[row]}


def _covers(relief: Charge | None, lack: Lack) -> bool:
    if relief is None:
        return False
    back = {SLOTS: relief.slots, MEMORY: relief.memory_bytes, CORES: relief.cores, IDLE: relief.shares}
    return all(back[row] >= amount for row, amount in lack.items())


def _sum(one: Charge, other: Charge) -> Charge:
    return Charge(
        one.shares + other.shares,
        one.slots + other.slots,
        one.memory_bytes + other.memory_bytes,
        one.cores + other.cores,
    )
