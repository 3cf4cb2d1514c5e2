"""Which card first: the order in which a policy looks at the cards of a node, best first.

    score(card) = 10 (ws (slot+slots used)/slots + wc (cores+cores used)/cores total
                      + wm (memory+memory used)/memory total)

`slot` is 1, or 0 for a claim that takes none.
`binpack` takes the highest score first, `spread` the lowest; equal scores go to the higher NUMA node, then to the lower
index, so that the same state always gives the same card.  A word that nobody knows means `spread`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from subak.model.card import CardState
from subak.model.request import (
    BINPACK,
    FEWEST_TENANTS,
    HIGHEST_INDEX,
    LEAST_ALLOCATED,
    LOWEST_INDEX,
    MOST_ALLOCATED,
    MOST_MEMORY_USED,
    MUTEX,
    NUMA,
    SPREAD,
    CardPolicy,
    Claim,
    Weights,
)
from subak.policy import allocated
from subak.snapshot.pool import SCALE


def card_score(card: CardState, slots: int, memory_bytes: int, cores: int, weights: Weights) -> int:
    """How full the card would be with so many more slots, so much memory and so many cores taken, in millionths.

    A card that has nothing to give scores 0.
    """
    device = card.device
    if device.slots <= 0 or device.cores <= 0 or device.memory_bytes <= 0:
        return 0
    return (
        weights.slot * (slots + card.slots_used) * SCALE // device.slots
        + weights.core * (cores + card.cores_used) * SCALE // device.cores
        + weights.memory * (memory_bytes + card.memory_used) * SCALE // device.memory_bytes
    )


def _full(card: CardState, claim: Claim) -> int:
    return card_score(card, int(claim.slotted), claim.memory_on(card.device), claim.cores, claim.policy.weights)


Key = Callable[[CardState, Claim], int | tuple[Any, ...]]

_KEYS: dict[str, Key] = {
    BINPACK: lambda card, claim: -_full(card, claim),
    SPREAD: _full,
    NUMA: lambda card, claim: -card.device.numa,
    MUTEX: lambda card, claim: card.used,
    LOWEST_INDEX: lambda card, claim: card.device.index,
    HIGHEST_INDEX: lambda card, claim: -card.device.index,
    MOST_MEMORY_USED: lambda card, claim: -card.memory_used,
    FEWEST_TENANTS: lambda card, claim: card.used,
    LEAST_ALLOCATED: lambda card, claim: -allocated.card_score(card, claim, LEAST_ALLOCATED),
    MOST_ALLOCATED: lambda card, claim: -allocated.card_score(card, claim, MOST_ALLOCATED),
}


@lru_cache(maxsize=256)
def _sort_keys(policy: CardPolicy) -> tuple[Key, Key, Key]:
    words = tuple(word if word in _KEYS else SPREAD for word in policy.order)
    if len(words) > 1 or NUMA in words:
        # A chain sorts by its words as written and, as HAMi has it, by descending index in the end.
        forced = (NUMA, *words) if policy.numa_bind and words[0] != NUMA else words
        keys = [_KEYS[word] for word in forced]
        return (lambda card, claim: tuple(key(card, claim) for key in keys)), _KEYS[HIGHEST_INDEX], _same
    word = words[0]
    if word not in (BINPACK, SPREAD, MUTEX):
        return _KEYS[word], _KEYS[LOWEST_INDEX], _same
    if not policy.numa_bind:
        return _KEYS[word], _KEYS[NUMA], _KEYS[LOWEST_INDEX]
    return (_low_numa if word == BINPACK else _KEYS[NUMA]), _KEYS[word], _KEYS[LOWEST_INDEX]


def _same(card: CardState, claim: Claim) -> int:
    return 0


def _low_numa(card: CardState, claim: Claim) -> int:
    return card.device.numa


def in_order(cards: Sequence[CardState], claim: Claim) -> list[CardState]:
    """The cards, best first."""
    first, second, third = _sort_keys(claim.policy)
    return sorted(cards, key=lambda card: (first(card, claim), second(card, claim), third(card, claim)))
