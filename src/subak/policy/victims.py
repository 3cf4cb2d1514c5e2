"""Who must leave one node so that a pod gets its place there: as few and as unimportant pods as can be found.

    price    fewest violated budgets, then the lowest highest priority, the lowest sum of priorities, the fewest pods,
             the latest start of the most important ones: kube-scheduler's order

kube-scheduler lets all less important pods leave and takes them back one by one, the most important first.  It does
not know the cards.  We do, so sets of pods are tried in the order of their price, as long as that takes few steps:
the first set that makes room is the cheapest there is.  For a share of one card it is sought on each card by itself.
Where sets are too many, the cheapest cards are chosen first, and pods are taken back as kube-scheduler does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from subak.model import manifest
from subak.model.budget import Budget
from subak.model.placement import Placement
from subak.policy.budgets import violating
from subak.policy.shortage import Lack, Shortage, Wanted
from subak.snapshot.cluster import Booking, Snapshot

MOST_SETS = 400
"""So many sets of pods are looked at, on one card or on the whole node, before a search gives up."""

MOST_PROOFS = 64
"""So many of them are put to the full rules on one node."""

OFFSET = 1 << 31
"""Added to each priority, so that two pods of a negative priority cost more than one."""

Price = tuple[int, float, int, int, float]
Fits = Callable[[], Placement | None]
"""The pod's place on the node as it is in the open transaction."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that may have to leave."""

    key: str
    pod: manifest.Pod
    booking: Booking
    budgets: tuple[Budget, ...] = ()
    started: float = inf

    @property
    def rank(self) -> tuple[int, float, str]:
        """The lowest is the most important: by priority, then the one that has run longest."""
        return (-self.pod.priority, self.started, self.key)


def started(pod: manifest.Pod) -> float:
    """When the pod was started, in seconds since 1970; one that was not yet is later than any other."""
    try:
        return datetime.fromisoformat(pod.status.start_time).timestamp()
    except ValueError:
        return inf


def price(victims: Sequence[Occupant]) -> Price:
    """What it costs that these leave; the most important comes first."""
    if not victims:
        return (0, -inf, 0, 0, -inf)
    highest = victims[0].pod.priority
    return (
        sum(violating(each.budgets for each in victims)) if any(each.budgets for each in victims) else 0,
        highest,
        sum(each.pod.priority + OFFSET for each in victims),
        len(victims),
        -min(each.started for each in victims if each.pod.priority == highest),
    )


@dataclass(slots=True)
class Search:
    """The search on one node, within a transaction.  With `everybody` pods that hold none of its cards matter too."""

    snapshot: Snapshot
    fits: Fits
    shortage: Shortage
    everybody: bool = False
    proofs: int = 0

    def run(self, occupants: Iterable[Occupant]) -> tuple[list[Occupant], Placement] | None:
        """The victims, the most important first, and the place that the pod then gets; None if it gets none."""
        ranked = sorted(occupants, key=lambda each: each.rank)
        if not self.everybody:
            ranked = [each for each in ranked if self.shortage.concerns(each.booking)]
        if not ranked or not self.shortage.met(each.booking for each in ranked):
            return None
        alone = self._one_card()
        if alone is not None:
            victims, all_tried = self._on_cards(alone, ranked)
            if all_tried:
                return self._checked(victims)
        else:
            victims, all_tried = self._cheapest(ranked, self.shortage.met, self._make_room)
            if all_tried:
                return self._checked(victims)
        return self._checked(self._best([victims, self._reprieved(ranked), *self._by_cards(ranked)]))

    def _one_card(self) -> Wanted | None:
        """The only claim, if it wants a share of one card and the node lacks nothing else."""
        wanted = self.shortage.wanted
        one = not self.everybody and not self.shortage.resources and len(wanted) == 1 and wanted[0].count == 1
        return wanted[0] if one else None

    def _on_cards(self, claim: Wanted, ranked: Sequence[Occupant]) -> tuple[list[Occupant] | None, bool]:
        """The cheapest victims on a single card, and whether all that could be cheaper were tried."""
        best: list[Occupant] | None = None
        complete = True
        for id, lack in claim.lacks.items():
            tenants = [each for each in ranked if id in each.booking.charges]
            card = _only(id, lack)
            if tenants and card.met(each.booking for each in tenants):
                found, all_tried = self._cheapest(tenants, card.met, self._make_room, best)
                best = found or best
                complete &= all_tried
        return best, complete

    def _cheapest(
        self,
        ranked: Sequence[Occupant],
        enough: Callable[[Iterable[Booking]], bool],
        proven: Callable[[Sequence[Occupant]], bool],
        below: Sequence[Occupant] | None = None,
    ) -> tuple[list[Occupant] | None, bool]:
        """The cheapest set of these that is enough, cheaper than `below`; and whether all cheaper ones were tried.

        A set costs more than its parts: so sets come from a heap in the order of their price, and the first one that
        is enough is the cheapest.
        """
        limit = None if below is None else price(below)
        heap: list[tuple[Price, tuple[int, ...]]] = [(price(()), ())]
        looked = 0
        while heap:
            _, chosen = heapq.heappop(heap)
            victims = [ranked[i] for i in chosen]
            if enough(each.booking for each in victims) and proven(victims):
                return victims, True
            looked += 1
            if looked > MOST_SETS or self.proofs > MOST_PROOFS:
                return None, False
            for i in range(chosen[-1] + 1 if chosen else 0, len(ranked)):
                larger = (*chosen, i)
                cost = price([ranked[each] for each in larger])
                if limit is None or cost < limit:
                    heapq.heappush(heap, (cost, larger))
        return None, True

    def _make_room(self, victims: Sequence[Occupant]) -> bool:
        self.proofs += 1
        return self._place_without(victims) is not None

    def _place_without(self, victims: Iterable[Occupant]) -> Placement | None:
        with self.snapshot.transaction():
            for each in victims:
                self.snapshot.forget(each.key)
            return self.fits()

    def _reprieved(self, ranked: Sequence[Occupant]) -> list[Occupant] | None:
        """All leave, then each is taken back if the pod still fits: those that a budget protects come first."""
        against = violating(each.budgets for each in ranked)
        order = sorted(range(len(ranked)), key=lambda i: (not against[i], i))
        victims: list[Occupant] = []
        with self.snapshot.transaction():
            for each in ranked:
                self.snapshot.forget(each.key)
            if self.fits() is None:
                return None
            for each in (ranked[i] for i in order):
                self.snapshot.put_back(each.key, each.booking)
                if self.fits() is None:
                    self.snapshot.forget(each.key)
                    victims.append(each)
        return sorted(victims, key=lambda each: each.rank)

    def _by_cards(self, ranked: Sequence[Occupant]) -> Iterable[list[Occupant] | None]:
        """For each claim: the cheapest victims on each of its cards, and as many of the cheapest cards as it wants."""
        leaving: dict[str, Occupant] = {}
        for claim in self.shortage.wanted:
            cards: list[tuple[Price, str, list[Occupant]]] = []
            for id, lack in claim.lacks.items():
                tenants = [each for each in ranked if id in each.booking.charges]
                found, _ = self._cheapest(tenants, _only(id, lack).met, lambda victims: True)
                if found is not None:
                    cards.append((price(found), id, found))
            for _, _, found in sorted(cards, key=lambda each: each[:2])[: claim.count]:
                leaving |= {each.key: each for each in found}
        if leaving:
            yield self._reprieved(sorted(leaving.values(), key=lambda each: each.rank))

    @staticmethod
    def _best(found: Iterable[list[Occupant] | None]) -> list[Occupant] | None:
        return min((each for each in found if each is not None), key=price, default=None)

    def _checked(self, victims: list[Occupant] | None) -> tuple[list[Occupant], Placement] | None:
        placement = None if victims is None else self._place_without(victims)
        return None if victims is None or placement is None else (victims, placement)


def _only(id: str, lack: Lack) -> Shortage:
    """What one card by itself lacks."""
    return Shortage((Wanted(1, {id: lack}),), {})
