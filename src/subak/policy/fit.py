"""Does a card fit a claim?  The rules in the order in which HAMi's users know them; the first that fails is the reason.

`fit` walks cards in order of preference and returns those to take, or how many cards failed by which rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from subak.dialects import metax_links as metax
from subak.model.card import CardState
from subak.model.device import FULL_CORES, MIG
from subak.model.reason import Reason
from subak.model.request import BINPACK, Claim, Pick
from subak.policy import function, mig, partition
from subak.policy.pick import pick

Refused = Counter[Reason]
Bound = frozenset[str] | None
"""Cards to which a pod that stays together is bound by its earlier containers; None if it is free."""

Rule = Callable[[CardState, Claim], Reason | None]

ONLINE = "online"


def healthy(card: CardState, claim: Claim) -> Reason | None:
    """The card works."""
    return None if card.device.healthy else Reason.CARD_NOT_HEALTH


def works(card: CardState, claim: Claim) -> Reason | None:
    """The same, in the word that MetaX's users know."""
    return None if card.device.healthy else Reason.CARD_UNHEALTHY


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


def class_compatible(card: CardState, claim: Claim) -> Reason | None:
    """Online and offline pods do not share a card with ordinary ones, nor offline ones join online ones."""
    fits = metax.class_fits(claim.app_class, [charge.tag[1] for charge in card.tenants.values()])
    return None if fits else Reason.CARD_APP_CLASS_MISMATCH


def qos_compatible(card: CardState, claim: Claim) -> Reason | None:
    """All who share a MetaX card share its QoS policy."""
    if claim.app_class == ONLINE or not card.tenants:
        return None
    fits = metax.qos_fits(claim.qos, metax.card_qos(card), card.used, claim.cores)
    return None if fits else Reason.CARD_QOS_POLICY_MISMATCH


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
    if claim.cores or card.cores_free > 0:
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


def cuttable(card: CardState, claim: Claim) -> Reason | None:
    """The card's driver can cut exactly this share."""
    if card.device.family not in claim.templated or card.device.model in dict(claim.templates):
        return None
    return Reason.CARD_TEMPLATE_MISMATCH


def function_left(card: CardState, claim: Claim) -> Reason | None:
    """A network card has a virtual function left."""
    return Reason.CARD_VIRTUAL_FUNCTIONS_EXHAUSTED if function.function_for(card, claim) is None else None


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
WITH_FUNCTION: tuple[Rule, ...] = (*ALL, function_left)
FROM_TEMPLATES: tuple[Rule, ...] = (*BEFORE_NUMA, cuttable, *COMMON)

SGPU_ONLINE: tuple[Rule, ...] = (
    type_admitted,
    works,
    open_for_new,
    class_compatible,
    qos_compatible,
    id_admitted,
    slot_left,
    unshared,
    memory_left,
)
SGPU: tuple[Rule, ...] = (*SGPU_ONLINE, cores_left, compute_unshared, compute_left)


def rules_for(claim: Claim) -> tuple[Rule, ...]:
    """The rules of a claim: MetaX sGPU (a claim with a QoS policy or class) has its own; online pods take no cores."""
    if claim.qos is None and not claim.app_class:
        if claim.templated:
            return FROM_TEMPLATES
        return ALL if claim.function is None else WITH_FUNCTION
    return SGPU_ONLINE if claim.app_class == ONLINE else SGPU


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
