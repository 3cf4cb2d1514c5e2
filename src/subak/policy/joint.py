"""Devices beside others that the pod has taken: a network card under the PCIe root of its GPU (Koordinator's).

    in turn one from each root, the better card first; then those elsewhere

With `same_roots` the roots must be the very same: every one gives a device, however few were asked for, and no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from subak.model.card import CardState
from subak.model.placement import Grant
from subak.model.reason import Reason
from subak.model.request import Claim
from subak.policy.fit import Refused, candidates


def roots(claim: Claim, given: Iterable[Grant], cards: Iterable[CardState]) -> frozenset[str]:
    """The PCIe roots of the devices that the claim wants to be beside; an unknown one is empty."""
    held = {share.id for grant in given if grant.dialect == claim.dialect for share in grant.shares}
    beside = claim.policy.beside
    return frozenset(card.device.pcie for card in cards if card.device.id in held and card.device.kind == beside)


def tying(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The claims whose devices must lie under the roots of others: few, if any, of a pod's."""
    return tuple(claim for claim in claims if claim.policy.same_roots)


def wanted(claim: Claim, tying: Iterable[Claim], cards: Sequence[CardState]) -> frozenset[str] | None:
    """The cards (by id) under roots where devices are left for all that must lie beside this claim; None for any."""
    bound: frozenset[str] | None = None
    for other in tying:
        if other.dialect != claim.dialect:
            continue
        passed, _ = candidates([card for card in cards if card.device.family in other.families], other, len(cards) + 1)
        usable = {card.device.pcie for card in passed} - {""}
        mine = [card.device for card in cards if card.device.family in claim.families]
        if any(device.kind == other.policy.beside for device in mine):
            found = frozenset(device.id for device in mine if device.pcie in usable)
            bound = found if bound is None else bound & found
    return bound


def renamed(refused: Refused) -> Refused:
    """Refusals of a claim that is bound to `wanted` cards, by the reason for that."""
    elsewhere = refused.pop(Reason.CARD_NOT_FOUND_CUSTOM_FILTER_RULE, 0)
    return refused + Counter({Reason.CARD_PCIE_ROOT_MISMATCH: elsewhere})


def in_turn(cards: Sequence[CardState], near: frozenset[str]) -> list[CardState]:
    """The cards, which come best first, in turn from each of these roots; then the others."""
    queues = [[card for card in cards if card.device.pcie == root] for root in sorted(near - {""})]
    place = {card.device.id: position for position, card in enumerate(cards)}
    turns = ([card for card in turn if card is not None] for turn in zip_longest(*queues))
    first = [card for turn in turns for card in sorted(turn, key=lambda card: place[card.device.id])]
    chosen = {card.device.id for card in first}
    return first + [card for card in cards if card.device.id not in chosen]


def choose(ordered: Sequence[CardState], claim: Claim, near: frozenset[str]) -> list[CardState] | Refused:
    """The cards to take, beside those roots; or why there are none."""
    passed, refused = candidates(ordered, claim, len(ordered) + 1)
    if not claim.policy.same_roots:
        if len(passed) >= claim.count:
            return _by_index(in_turn(passed, near)[: claim.count])
        return refused + Counter({Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST: len(passed)})
    count = max(claim.count, len(near))
    picked = in_turn([card for card in passed if card.device.pcie in near - {""}], near)[:count]
    if len(picked) == count and {card.device.pcie for card in picked} == near:
        return _by_index(picked)
    return refused + Counter({Reason.CARD_PCIE_ROOT_MISMATCH: len(passed) or 1})


def _by_index(cards: Iterable[CardState]) -> list[CardState]:
    return sorted(cards, key=lambda card: card.device.index)
