"""Who must leave one node so that a pod gets its place there: as few and as unimportant pods as can be found.

    price    fewest violated budgets, then the lowest highest priority, the lowest sum of priorities, the fewest pods,
             the latest start of the most important ones: kube-scheduler's order

kube-scheduler lets all less important pods leave and takes them back one by one, the most important first.  It does
not know the cards.  We do: amounts alone tell which set of pods is the cheapest on each card, and so no set can cost
less than the cheapest cards together.  As a rule that very set makes room.  Where vendors' rules, node resources or
several claims decide, sets are tried in the order of their price, as long as that takes few steps, and at last pods are
taken back as kube-scheduler does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from subak.model import manifest
from subak.model.budget import Budget
from subak.model.placement import Placement
from subak.policy.budgets import violating
from subak.policy.shortage import Shortage, Wanted
from subak.snapshot.cluster import Booking, Snapshot

MOST_SETS = 400
"""So many sets of pods are looked at, on one card or on the whole node, before a search gives up."""

MOST_PROOFS = 64
"""So many of them are put to the full rules."""

OFFSET = 1 << 31
"""Added to each priority, so that two pods of a negative priority cost more than one."""

Price = tuple[int, float, int, int, float]
Fits = Callable[[], Placement | None]
"""The pod's place on the node as it is in the open transaction."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that may have to leave.  `weight` is given where more than the pod's own priority makes it important."""

    key: str
    pod: manifest.Pod
    booking: Booking
    budgets: tuple[Budget, ...] = ()
    started: float = inf
    weight: int | None = None

    @property
    def priority(self) -> int:
        """How important it is; the higher, the more."""
        return self.pod.priority if self.weight is None else self.weight

    @property
    def rank(self) -> tuple[int, float, str]:
        """The lowest is the most important: by priority, then the one that has run longest."""
        return (-self.priority, self.started, self.key)


Enough = Callable[[Iterable[Booking]], bool]
"""Whether it is enough, by amounts, that these leave."""

Pricing = Callable[[Sequence[Occupant]], Price]
Proof = Callable[[Sequence[Occupant]], bool]
"""Whether all rules agree that these victims make room, or that they may all leave."""


def unasked(victims: Sequence[Occupant]) -> bool:
    """Nobody objects: no rules are asked."""
    return True


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
    highest = victims[0].priority
    return (
        sum(violating(each.budgets for each in victims)) if any(each.budgets for each in victims) else 0,
        highest,
        sum(each.priority + OFFSET for each in victims),
        len(victims),
        -min(each.started for each in victims if each.priority == highest),
    )


def heaviness(victims: Sequence[Occupant]) -> Price:
    """The price without the highest priority, where that is given."""
    violations, _, total, count, start = price(victims)
    return (violations, 0, total, count, start)


@dataclass(frozen=True, slots=True)
class Guess:
    """What amounts alone tell: no set costs less than `bound`.  `victims` cost just that, if they are known."""

    bound: Price
    victims: list[Occupant] | None


@dataclass(slots=True)
class Search:
    """The search on one node, within a transaction.

    With `everybody` pods matter that hold none of its cards too: a filter that looks at pods keeps the pod off.
    `allowed` says of several whether they may all leave; if they may, so may some of them.
    """

    snapshot: Snapshot
    fits: Fits
    shortage: Shortage
    everybody: bool = False
    allowed: Proof = unasked

    def guess(self, occupants: Iterable[Occupant]) -> Guess | None:
        """A quick look, which asks no rules; None if there is no room even without all of them."""
        ranked = self._ranked(occupants)
        if not ranked or not self.shortage.met(each.booking for each in ranked):
            return None
        if (claim := self._only_claim()) is not None:
            return self._guess_cards(claim, ranked)
        found, reached = self._cheapest(ranked, self.shortage.met, price)
        return Guess(reached, found)

    def run(self, occupants: Iterable[Occupant]) -> tuple[list[Occupant], Placement] | None:
        """The victims, the most important first, and the place that the pod then gets; None if it gets none."""
        ranked = self._ranked(occupants)
        guess = self.guess(ranked)
        if guess is None:
            return None
        if guess.victims is not None and self.allowed(guess.victims):
            placement = self._place_without(guess.victims)
            if placement is not None:
                return guess.victims, placement
        if self._place_without(ranked) is None:
            return None
        found = self._tried(ranked) or self._taken_back(ranked)
        placement = None if found is None else self._place_without(found)
        return None if found is None or placement is None else (found, placement)

    def _ranked(self, occupants: Iterable[Occupant]) -> list[Occupant]:
        """Those whose leaving could help, the most important first."""
        ranked = sorted(occupants, key=lambda each: each.rank)
        return [each for each in ranked if self.everybody or self.shortage.concerns(each.booking)]

    def _only_claim(self) -> Wanted | None:
        """The claim, if there is but one and cards are all that the node lacks."""
        wanted = self.shortage.wanted
        if self.everybody or self.shortage.resources or len(wanted) != 1 or wanted[0].stacks:
            return None
        return wanted[0]

    def _tried(self, ranked: Sequence[Occupant]) -> list[Occupant] | None:
        """The cheapest set by all rules, if it is found within few steps: for a share of one card, card by card."""
        claim = self._only_claim()
        if claim is not None and claim.count == 1:
            return next(iter(self._cards(claim, ranked, price, self._makes_room)), None)
        return self._cheapest(ranked, self.shortage.met, price, self._makes_room)[0]

    def _guess_cards(self, claim: Wanted, ranked: Sequence[Occupant]) -> Guess | None:
        """The cheapest cards.  What two of them cost is what each costs, if no pod holds more than one."""
        cards = self._cards(claim, ranked, price)[: claim.count]
        if len(cards) < claim.count:
            return None
        if claim.count == 1:
            return Guess(price(cards[0]), cards[0])
        highest = max(price(each)[1] for each in cards)
        if any(price(each)[0] for each in cards) or any(len(each.booking.charges) > 1 for each in ranked):
            return Guess((0, highest, 0, 0, -inf), None)
        lower = [each for each in ranked if each.priority <= highest]
        lightest = self._cards(claim, lower, heaviness)[: claim.count]
        victims = sorted((each for card in lightest for each in card), key=lambda each: each.rank)
        if price(victims)[0]:  # one budget protects pods on several cards
            return Guess((0, highest, 0, 0, -inf), None)
        return Guess(price(victims), victims)

    def _cards(
        self, claim: Wanted, ranked: Sequence[Occupant], priced: Pricing, proven: Proof = unasked
    ) -> list[list[Occupant]]:
        """For each card of the claim the cheapest victims that make room there; the cheapest card first."""
        found: list[tuple[Price, str, list[Occupant]]] = []
        for id, lack in claim.lacks.items():
            tenants = [each for each in ranked if id in each.booking.charges]
            enough = Shortage((Wanted(1, {id: lack}),), {}).met
            victims = self._cheapest(tenants, enough, priced, proven)[0] or _spared(tenants, enough)
            if victims is not None and self.allowed(victims) and proven(victims):
                found.append((priced(victims), id, victims))
        return [victims for _, _, victims in sorted(found, key=lambda each: each[:2])]

    def _cheapest(
        self,
        ranked: Sequence[Occupant],
        enough: Enough,
        priced: Pricing,
        proven: Proof = unasked,
    ) -> tuple[list[Occupant] | None, Price]:
        """The cheapest set of these that is enough; and the price up to which all sets were tried.

        A set costs more than its parts: so sets come from a heap in the order of their price, and the first one that
        is enough is the cheapest.
        """
        cheap = ranked[::-1]
        protected = any(each.budgets for each in ranked)
        heap: list[tuple[Price, tuple[int, ...]]] = [(priced(()), ())]
        looked, proofs, reached = 0, 0, priced(())
        while heap and looked < MOST_SETS and proofs < MOST_PROOFS:
            reached, chosen = heapq.heappop(heap)
            victims = [cheap[i] for i in reversed(chosen)]
            looked += 1
            if enough(each.booking for each in victims) and self.allowed(victims):
                if proven(victims):
                    return victims, reached
                proofs += 1
            for larger in _following(chosen, len(cheap), protected):
                heapq.heappush(heap, (priced([cheap[i] for i in reversed(larger)]), larger))
        return None, reached

    def _makes_room(self, victims: Sequence[Occupant]) -> bool:
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

    def _taken_back(self, ranked: Sequence[Occupant]) -> list[Occupant] | None:
        """All leave and are taken back, or only those on the cheapest cards of every claim: the better of both."""
        cards = [card for claim in self.shortage.wanted for card in self._cards(claim, ranked, price)[: claim.count]]
        on_cards = {each.key: each for card in cards for each in card}
        found = [self._reprieved(ranked), self._reprieved([each for each in ranked if each.key in on_cards])]
        return min((each for each in found if each is not None and self.allowed(each)), key=price, default=None)


def _following(chosen: tuple[int, ...], size: int, protected: bool) -> Iterator[tuple[int, ...]]:
    """The sets to look at after this one, so that each comes once and none before a cheaper one.

    The cheapest pods come first: so it is enough to add the next one, or to take it in place of the last.  Not so if
    budgets protect some: then every pod is added that comes later.
    """
    following = chosen[-1] + 1 if chosen else 0
    if protected:
        yield from ((*chosen, i) for i in range(following, size))
    elif following < size:
        yield (*chosen, following)
        if chosen:
            yield (*chosen[:-1], following)


def _spared(ranked: Sequence[Occupant], enough: Enough) -> list[Occupant] | None:
    """All leave but those, the most important first, whom amounts allow to stay."""
    if not enough(each.booking for each in ranked):
        return None
    leaving = list(ranked)
    for each in ranked:
        rest = [other for other in leaving if other is not each]
        if enough(other.booking for other in rest):
            leaving = rest
    return leaving
