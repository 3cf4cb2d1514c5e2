"""Does a card fit a claim?  The rules in the order in which HAMi's users know them; the first that fails is the reason.

`fit` walks cards in order of preference and returns those to take, or how many cards failed by which rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from subak.model.card import CardState
from subak.model.device import FULL_CORES, MIG
from subak.model.reason import Reason
from subak.model.request import BINPACK, Claim, Pick
from subak.model.rules import PLAIN
from subak.policy import mig, partition, registry

Refused = Counter[Reason]
Bound = frozenset[str] | None
"""Cards to which a pod that stays together is bound by its earlier containers; None if it is free."""

Rule = Callable[[CardState, Claim], Reason | None]


def healthy(card: CardState, claim: Claim) -> Reason | None:
    """The card works."""
    return None if card.device.healthy else claim.rules.unhealthy


def open_for_new(card: CardState, claim: Claim) -> Reason | None:
    """No administrator has closed the card."""
    return Reason.CARD_CORDONED if card.device.cordoned else None


def type_admitted(card: CardState, claim: Claim) -> Reason | None:
    """The card is of the vendor asked for, and the user admits its model, mode and labels."""
    selection, device = claim.selection, card.device
    if device.family in claim.families and selection.admits_type(device.model) and selection.admits_mode(device.mode):
        return None if not selection.labels or selection.admits_labels(device.labels) else Reason.CARD_TYPE_MISMATCH
    return Reason.CARD_TYPE_MISMATCH


def id_admitted(card: CardState, claim: Claim) -> Reason | None:
    """The user admits this very card."""
    return None if claim.selection.admits_id(card.device.id) else Reason.CARD_UUID_MISMATCH


def slot_left(card: CardState, claim: Claim) -> Reason | None:
    """Another container may join, where the dialect counts slots."""
    return None if card.slots_free > 0 or not claim.slotted else Reason.CARD_TIME_SLICING_EXHAUSTED


def unshared(card: CardState, claim: Claim) -> Reason | None:
    """Who wants a card alone gets one that nobody uses."""
    alone = claim.policy.mutex or claim.idle
    return Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT if alone and card.used else None


def memory_left(card: CardState, claim: Claim) -> Reason | None:
    """The share's memory is free."""
    asked = claim.memory_on(card.device)
    return None if not asked or card.memory_free >= asked else Reason.CARD_INSUFFICIENT_MEMORY


def cores_left(card: CardState, claim: Claim) -> Reason | None:
    """The share's cores are free."""
    return None if not claim.cores or card.cores_free >= claim.cores else Reason.CARD_INSUFFICIENT_CORE


def compute_unshared(card: CardState, claim: Claim) -> Reason | None:
    """Who wants all cores of a card in HAMi's way is alone on it."""
    alone = claim.slotted and card.device.cores == claim.cores == FULL_CORES
    return Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT if alone and card.used else None


def compute_left(card: CardState, claim: Claim) -> Reason | None:
    """A card whose cores are all promised takes nobody else in HAMi's way, not even one who asks for none.

    Where cores are just an amount, it takes all who ask for none, unless a tenant has the card alone by HAMi's rule.
    """
    if claim.cores or card.cores_free > 0 or not claim.rules.counts_cores:
        return None
    return Reason.CARD_COMPUTE_UNITS_EXHAUSTED if claim.slotted or _held_alone(card) else None


def _held_alone(card: CardState) -> bool:
    whole = card.device.cores == FULL_CORES
    return whole and any(each.slots == 1 and each.cores == FULL_CORES for each in card.tenants.values())


def extras_left(card: CardState, claim: Claim) -> Reason | None:
    """Amounts that only this vendor counts are free."""
    if not claim.extras:
        return None
    total = dict(card.device.extras)
    for name, amount in claim.extras:
        taken = sum(charge.extras.get(name, 0) for charge in card.tenants.values())
        if total.get(name, 0) - taken < amount:
            return Reason.CARD_INSUFFICIENT_EXTRA
    return None


def sliceable(card: CardState, claim: Claim) -> Reason | None:
    """A card in MIG mode has a free instance that is large enough, and the pod's record can hold it."""
    if card.device.mode != MIG or (claim.instances and mig.instance_for(card, claim) is not None):
        return None
    return Reason.CARD_MIG_TOPOLOGY_INFEASIBLE


def joinable(card: CardState, claim: Claim) -> Reason | None:
    """The vendor lets the claim join the card."""
    return claim.rules.refuse(card, claim.cores)


def completed(card: CardState, claim: Claim) -> Reason | None:
    """The card has what the vendor gives with a share besides amounts."""
    return claim.rules.refuse_last(card)


BEFORE_NUMA: tuple[Rule, ...] = (healthy, open_for_new, type_admitted)
COMMON: tuple[Rule, ...] = (
    id_admitted,
    slot_left,
    unshared,
    memory_left,
    cores_left,
    compute_unshared,
    compute_left,
    extras_left,
    sliceable,
)
ALL: tuple[Rule, ...] = BEFORE_NUMA + COMMON
WITH_OWN: tuple[Rule, ...] = (*BEFORE_NUMA, joinable, *COMMON, completed)


def rules_for(claim: Claim) -> tuple[Rule, ...]:
    """The rules of a claim, among them those of its vendor if there are any."""
    return ALL if claim.rules is PLAIN else WITH_OWN


def refuse(card: CardState, claim: Claim, rules: Sequence[Rule], bound: Bound = None) -> Reason | None:
    """The first rule that the card fails; the pod's own other containers have the last word."""
    for rule in rules:
        reason = rule(card, claim)
        if reason is not None:
            return reason
    return None if bound is None or card.device.id in bound else Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE


def candidates(
    cards: Sequence[CardState], claim: Claim, enough: int, bound: Bound = None
) -> tuple[list[CardState], Refused]:
    """The cards that pass, in the given order, until there are `enough`, and why the others do not."""
    rules = rules_for(claim)
    passed: list[CardState] = []
    refused: Refused = Counter()
    for card in cards:
        reason = refuse(card, claim, rules, bound)
        if reason is not None:
            refused[reason] += 1
            continue
        passed.append(card)
        if len(passed) == enough:
            break
    return passed, refused


def candidates_of_one_numa(cards: Sequence[CardState], claim: Claim) -> tuple[list[CardState], Refused]:
    """The first cards in order that pass and sit together; a change of NUMA node drops what was collected."""
    passed: list[CardState] = []
    refused: Refused = Counter()
    numa: int | None = None
    for card in cards:
        if (reason := refuse(card, claim, BEFORE_NUMA)) is None and card.device.numa != numa:
            if passed:
                refused[Reason.NUMA_NOT_FIT] += len(passed)
            numa, passed = card.device.numa, []
        reason = reason or refuse(card, claim, COMMON)
        if reason is not None:
            refused[reason] += 1
            continue
        passed.append(card)
        if len(_stacked(passed, claim)) == claim.count:
            break
    return _stacked(passed, claim), refused


def _stacked(passed: Sequence[CardState], claim: Claim) -> list[CardState]:
    """As many cards as the claim asks for, if there are: each as often as it gives instances, the first ones first."""
    states: list[CardState] = []
    for card in passed:
        states += mig.stack(card, claim, claim.count - len(states))
        if len(states) >= claim.count:
            break
    return states


def everywhere(claim: Claim, cards: Sequence[CardState]) -> Claim:
    """The claim for every card that the user admits, at least one: a broken or full one is not passed over."""
    return replace(claim, count=sum(type_admitted(card, claim) is None for card in cards) or 1)


def _scattered(claim: Claim, cards: Sequence[CardState]) -> Reason:
    """Why cards that fit do not fit together."""
    if not partition.required(claim, cards):
        return Reason.NUMA_NOT_FIT
    return Reason.CARD_PARTITION_NOT_FREE if partition.exists(claim, cards) else Reason.CARD_PARTITION_MISSING


def pick(passed: Sequence[CardState], claim: Claim, cards: Sequence[CardState], node_policy: str) -> list[CardState]:
    """As many of the passing cards as the claim asks for; none if they do not lie together as it demands."""
    if claim.policy.partition is not None:
        chosen = partition.choose(passed, claim, cards)
        if chosen is not None:
            return chosen
    if len(passed) == claim.count and claim.policy.pick != Pick.TREE:
        return list(passed)
    return registry.PICKS[claim.policy.pick](passed, claim, cards, node_policy)


def fit(
    cards: Sequence[CardState], claim: Claim, node_policy: str = BINPACK, bound: Bound = None
) -> list[CardState] | Refused:
    """The cards to take, best first in `cards`; or how many cards failed each rule."""
    if claim.everywhere:
        claim = everywhere(claim, cards)
    if claim.policy.numa_bind:
        passed, refused = candidates_of_one_numa(cards, claim)
    else:
        first = claim.policy.pick == Pick.IN_ORDER and claim.policy.partition is None
        enough = claim.count if first else len(cards) + 1
        passed, refused = candidates(cards, claim, enough, bound)
        if claim.instances and claim.count > 1 and (first or len(passed) < claim.count):
            passed = _stacked(passed, claim)
    if len(passed) >= claim.count:
        picked = pick(passed, claim, cards, node_policy)
        if not picked:
            refused[_scattered(claim, cards)] += len(passed)
        return picked or refused
    if passed:
        refused[Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST] += len(passed)
    return refused
