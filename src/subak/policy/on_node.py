"""A whole pod on one node: every claim gets its cards, or the node is refused.

Claims are served in the order in which their containers start.  Init containers run before the others and give their
shares back; sidecars and app containers keep theirs.  If a later claim finds no room, earlier ones try other cards:
a pod fits if its containers fit together, not only if the first pick of each does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from subak.model.card import OWN, CardState
from subak.model.device import MIG
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Share, charges
from subak.model.reason import Reason
from subak.model.request import Claim, Request
from subak.policy import joint, mig
from subak.policy.fit import Bound, Refused, candidates, fit
from subak.policy.order import in_order
from subak.policy.pick import lie_together, others

MOST_TRIALS = 2_000
"""Bound on the search for a pod of several containers; one container never searches."""

Grants = tuple[Grant, ...]


def on_node(node: Node, cards: Sequence[CardState], request: Request) -> Grants | Refused:
    """The grants of the whole pod, in the order of the request's claims; or why there are none."""
    for claim in request.claims:
        mine = _of(cards, claim)
        if len(mine) < claim.count and mig.most(mine, claim) < claim.count:
            return Counter({Reason.NODE_INSUFFICIENT_DEVICE: 1})
    if len(request.claims) != 1:
        return _Trial(cards, request).run()
    taken = fit(in_order(mine, claim), claim, request.node_policy)
    return taken if isinstance(taken, Counter) else (grant(claim, taken),)


def _of(cards: Sequence[CardState], claim: Claim) -> list[CardState]:
    return [card for card in cards if card.device.family in claim.families]


def grant(claim: Claim, cards: Iterable[CardState]) -> Grant:
    """The claim's share of each of these cards."""
    shares = tuple(_share(claim, card) for card in cards)
    return Grant(claim.dialect, claim.containers, claim.role, shares, claim.rules.tag, claim.slotted)


def _share(claim: Claim, card: CardState) -> Share:
    device = card.device
    if device.mode == MIG:
        given = mig.share(card, claim)
        assert given is not None, "a card that passed has an instance left"
        return given
    plain = Share(device.id, device.index, claim.memory_on(device), claim.cores, claim.extras)
    return claim.rules.complete(plain, card)


@dataclass(slots=True)
class _Trial:
    """One attempt to place several claims; `cards` are copies that it books on as it goes."""

    cards: Sequence[CardState]
    request: Request
    tying: Sequence[Claim] = ()
    steps: int = 0
    refused: Refused = field(default_factory=Counter)

    def run(self) -> Grants | Refused:
        """The grants in the order of the request's claims."""
        starting = _starting(self.request.claims)
        self.tying = joint.tying(starting)
        found = self._serve(starting, ())
        if found is None:
            return self.refused
        by_claim = {id(claim): given for claim, given in zip(starting, found, strict=True)}
        return tuple(by_claim[id(claim)] for claim in self.request.claims)

    def _serve(self, claims: Sequence[Claim], given: Grants) -> Grants | None:
        """Grants for `claims`, all others being `given`; None if they do not fit."""
        if not claims:
            return given
        claim, rest = claims[0], claims[1:]
        for chosen in self._choices(claim, given):
            self.steps += 1
            mine = grant(claim, chosen)
            if not mine.given_back:
                _book(self.cards, mine, 1)
            found = self._serve(rest, (*given, mine))
            if not mine.given_back:
                _book(self.cards, mine, -1)
            if found is not None:
                return found
            if self.steps >= MOST_TRIALS:
                return None
        return None

    def _choices(self, claim: Claim, given: Grants) -> Iterator[Sequence[CardState]]:
        """The policy's pick first, then every other set of cards that passes."""
        ordered = in_order(_of(self.cards, claim), claim)
        bound = bound_to(claim, given)
        if claim.policy.beside:
            best = joint.choose(ordered, claim, joint.roots(claim, given, self.cards))
        else:
            wanted = joint.wanted(claim, self.tying, self.cards)
            bound = bound if wanted is None else wanted
            best = fit(ordered, claim, self.request.node_policy, bound)
            if wanted is not None and isinstance(best, Counter):
                best = joint.renamed(best)
        if isinstance(best, Counter):
            first = not self.refused
            if self._alone(claim) or (first and _too_many(self.request.claims, claim, given, self.cards)):
                self.steps = MOST_TRIALS  # other cards for the others would not help: no need to search on
            self.refused = self.refused or best  # of the first claim that found no room on the preferred way
            return
        yield best
        if claim.policy.numa_bind or claim.policy.beside or claim.everywhere:
            return
        passed, _ = candidates(ordered, claim, len(ordered) + 1, bound)
        stacks = [mig.stack(card, claim, claim.count) for card in passed]
        picked = sorted(card.device.id for card in best)
        for chosen in others(stacks, claim.count):
            if sorted(card.device.id for card in chosen) != picked and lie_together(chosen, claim, ordered):
                yield chosen

    def _alone(self, claim: Claim) -> bool:
        """Whether no other claim of the pod could take a card of this one, or tie it to a place."""
        others = (each for each in self.request.claims if each is not claim)
        return not claim.policy.same_roots and all(claim.families.isdisjoint(each.families) for each in others)


def _too_many(claims: Iterable[Claim], refused: Claim, given: Grants, cards: Sequence[CardState]) -> bool:
    """Whether claims that are served together want more slots than these cards have, however they are spread.

    `cards` carry what was `given`.  Cards in MIG mode have as many places as they can be cut into.
    """
    mine = _of(cards, refused)
    if not refused.slotted or any(card.device.mode == MIG for card in mine):
        return False
    ids = {card.device.id for card in mine}
    held = sum(share.id in ids for each in given if each.slotted and not each.given_back for share in each.shares)
    free = sum(max(card.slots_free, 0) for card in mine) + held
    staying = (each for each in claims if each.slotted and each.role is not Role.INIT)
    return sum(each.count for each in staying if each.families == refused.families) > free


def bound_to(claim: Claim, given: Grants) -> Bound:
    """The card that a pod that stays together has taken; none at all if an earlier container took several."""
    if not claim.together:
        return None
    taken = frozenset(share.id for each in given if each.dialect == claim.dialect for share in each.shares)
    if not taken:
        return None
    return taken if len(taken) == 1 else frozenset()


def _starting(claims: Sequence[Claim]) -> list[Claim]:
    """Claims in the order in which their containers start; devices beside others come after those."""
    return sorted(claims, key=lambda claim: (claim.role is Role.APP, claim.policy.beside != "", claim.containers))


def _book(cards: Iterable[CardState], given: Grant, sign: int) -> None:
    """Let the pod's other containers see (or no longer see) what this one takes."""
    owner, taken = f"{OWN}{given.containers[0]}", charges((given,))
    for card in cards:
        charge = taken.get(card.device.id)
        if charge is None:
            continue
        card.take(charge, sign)
        rest = {key: held for key, held in card.tenants.items() if key != owner}
        card.tenants = {**rest, owner: charge} if sign > 0 else rest
