"""How MetaX cards are wired, and what taking some of them gains and loses.

Zones, for shared cards (sGPU) that are taken whole

    cards from the smallest link zone that has enough, else from the smallest zones together
    s(X)  = 10 for each pair of X in the same zone
    score = 10 s(A) - (s(F) - s(A) - s(F without A))                F: idle cards, A: those taken whole

Links, for whole cards, as MetaX's plugin computes it

    pair      = 110 connected by MetaXLink, 50 behind the same PCIe switch, 10 else
    score(S)  = sum over the pairs of S
    loss(S)   = score(F) - score(S) - score(F without S)            F: idle cards
    scores[n] = the highest score(S), losses[n] = the least loss(S), S being n cards of F
    node      = 2000 - losses[n] under binpack (the highest wins), 2000 - scores[n] under spread (the lowest wins);
                of equal ones the better linked wins, or under spread the one that loses less
    cards     = the S with the least loss under binpack, with the highest score under spread
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from subak.model.card import CardState
from subak.model.device import Device
from subak.model.request import SPREAD

SCORES, LOSSES = "metax.scores", "metax.losses"
"""Names of the vendor's tables in `Node.tables`."""

LINKED, SWITCHED, APART = 110, 50, 10
"""Scores of a pair of cards."""

ZONE_PAIR = 10

NODE_OFFSET = 2_000
UNKNOWN = 1_000_000
"""A node whose wiring nobody tells: worse than any other."""

STEP = 1 << 16
"""One of HAMi's points of a node, so that the other table decides between nodes of equal points."""

MOST_CARDS = 16
"""Up to so many free cards all 65,536 ways to divide them are compared; more are divided by zones."""

Tables = Mapping[str, Mapping[int, int]]
T = TypeVar("T")


def by_zones(cards: Sequence[T], count: int, zone: Callable[[T], int]) -> list[T]:
    """The `count` cards whose taking harms the link zones least; zones of equal size come by number."""
    zones: dict[int, list[T]] = {}
    for card in cards:
        zones.setdefault(max(zone(card), 0), []).append(card)
    unlinked = zones.pop(0, [])
    smallest_first = [zones[number] for number in sorted(zones, key=lambda number: (len(zones[number]), number))]
    for members in smallest_first:
        if len(members) >= count:
            return members[:count]
    return [card for members in (*smallest_first, unlinked) for card in members][:count]


def zone_score(free: Sequence[int], chosen: Sequence[int]) -> int:
    """How well a node suits cards taken whole, by the zones of its idle cards and of the chosen among them."""
    taken, rest = _zone_pairs(Counter(chosen)), _zone_pairs(Counter(free) - Counter(chosen))
    return 10 * taken - (_zone_pairs(Counter(free)) - taken - rest)


def _zone_pairs(zones: Mapping[int, int]) -> int:
    return sum(ZONE_PAIR * size * (size - 1) // 2 for zone, size in zones.items() if zone > 0)


def pair_score(a: Device, b: Device) -> int:
    """How well two cards are connected.  MetaXLink beats a common PCIe switch where they have both."""
    strength = a.links.get(b.id, b.links.get(a.id))
    if strength is not None:
        return strength
    if a.zone > 0 and a.zone == b.zone:
        return LINKED
    return SWITCHED if a.pcie and a.pcie == b.pcie else APART


def topology_tables(devices: Sequence[Device]) -> tuple[dict[int, int], dict[int, int]]:
    """`scores` and `losses` of a set of free cards."""
    choices = _choices(*_layout(devices))
    return {n: best.score for n, (best, _) in choices.items()}, {n: least.loss for n, (_, least) in choices.items()}


def node_tables(vendor: Tables, free: Sequence[Device]) -> Tables:
    """The tables to judge a node by: MetaX's own, or ours.

    MetaX's speak of the cards that were free when its plugin last looked.  Where the ledger knows of another number,
    they are out of date (several pods may come within a second), and ours are better if the wiring is known.
    """
    known = any(device.zone > 0 or device.pcie or device.links for device in free)
    ours: Tables = dict(zip((SCORES, LOSSES), topology_tables(free), strict=True)) if known else {}
    tables = {}
    for name in (SCORES, LOSSES):
        theirs = vendor.get(name, {})
        tables[name] = theirs if max(theirs, default=0) == len(free) else ours.get(name, theirs)
    return tables


def metax_gpu_node_score(node_policy: str, count: int, tables: Tables) -> int:
    """HAMi's score of a node for `count` whole cards: the highest wins under binpack, the lowest under spread.

    No table scores 0, a table without the number as if nothing were gained or lost: see `node_points`.
    """
    table = tables.get(_decisive(node_policy))
    return 0 if table is None else NODE_OFFSET - table.get(count, 0)


def _decisive(node_policy: str) -> str:
    return SCORES if node_policy == SPREAD else LOSSES


def node_points(node_policy: str, count: int, free: Sequence[Device], vendor: Tables) -> int:
    """The score of a node with these free cards and tables of the vendor, HAMi's times `STEP`.

    A node without figures must not win; with HAMi's score alone it would, under spread.
    """
    tables = node_tables(vendor, free)
    worst = UNKNOWN if node_policy == SPREAD else -UNKNOWN
    if count not in tables.get(_decisive(node_policy), {}):
        return worst * STEP
    points = metax_gpu_node_score(node_policy, count, tables)
    other, unknown = (LOSSES, STEP - 1) if node_policy == SPREAD else (SCORES, 0)
    tie = tables.get(other, {}).get(count, unknown)
    return max(-UNKNOWN + 1, min(points, UNKNOWN - 1)) * STEP + max(0, min(tie, STEP - 1))


def best_cards(free: Sequence[CardState], count: int, node_policy: str) -> list[CardState]:
    """The `count` (at most all) of the free cards that the policy prefers.

    Spread wants the best connected, binpack leaves the best connected.  Where that leaves a choice, the other decides,
    and then the order in which the cards come.
    """
    best, least = _choices(*_layout([card.device for card in free]))[count]
    return [free[position] for position in (best if node_policy == SPREAD else least).cards]


class _Choice(NamedTuple):
    """A way to take some of the free cards, by their positions."""

    score: int
    loss: int
    cards: tuple[int, ...]


_Pairs = tuple[tuple[int, ...], ...]
_Choices = dict[int, tuple[_Choice, _Choice]]
"""By number of cards: the choice with the best score, and the one with the least loss."""


def _layout(devices: Sequence[Device]) -> tuple[_Pairs, tuple[int, ...]]:
    """All that a choice depends on: pair scores of each card with those before it, and zones.

    Nodes of a kind have few layouts, so that nearly every choice has been made before.
    """
    pairs = tuple(tuple(pair_score(a, b) for b in devices[:i]) for i, a in enumerate(devices))
    return pairs, tuple(device.zone for device in devices)


@lru_cache(maxsize=1024)
def _choices(pairs: _Pairs, zones: tuple[int, ...]) -> _Choices:
    return _compared(pairs) if len(pairs) <= MOST_CARDS else _zoned(pairs, zones)


def _compared(pairs: _Pairs) -> _Choices:
    """The best choices among all subsets of the cards."""
    size = len(pairs)
    scores = _subset_scores(pairs)
    losses = scores[-1] - scores - scores[::-1]  # the complement of a subset is its mirror image
    masks = np.arange(len(scores))
    counts = np.bitwise_count(masks)

    def best(count: int, first: NDArray[np.int64], second: NDArray[np.int64]) -> _Choice:
        among = masks[counts == count]
        for figure in (first, second):
            among = among[figure[among] == figure[among].max()]
        mask = int(among[-1])  # the highest: the first card is the highest bit
        cards = tuple(card for card in range(size) if mask >> (size - 1 - card) & 1)
        return _Choice(int(scores[mask]), int(losses[mask]), cards)

    return {n: (best(n, scores, -losses), best(n, -losses, scores)) for n in range(1, size + 1)}


def _subset_scores(pairs: _Pairs) -> NDArray[np.int64]:
    """score(S) for every subset, by its bit mask; the first card is the highest bit.

    Each bit doubles what is known: a subset with it scores as the one without, plus its pairs with the others.
    """
    size = len(pairs)
    scores = np.zeros(1, np.int64)
    for card in reversed(range(size)):
        links = np.zeros(1, np.int64)
        for other in reversed(range(card + 1, size)):
            links = np.concatenate((links, links + pairs[other][card]))
        scores = np.concatenate((scores, scores + links))
    return scores


def _zoned(pairs: _Pairs, zones: tuple[int, ...]) -> _Choices:
    """Choices by zones, for sets too large to compare all subsets."""
    size = len(pairs)
    matrix = np.zeros((size, size), np.int64)
    for i, row in enumerate(pairs):
        matrix[i, :i] = row
    choices: _Choices = {}
    for count in range(1, size + 1):
        cards = tuple(sorted(by_zones(range(size), count, zones.__getitem__)))
        taken = np.zeros(size, np.int64)
        taken[list(cards)] = 1
        rest = 1 - taken
        score = int(taken @ matrix @ taken)
        choice = _Choice(score, int(matrix.sum() - rest @ matrix @ rest) - score, cards)
        choices[count] = (choice, choice)
    return choices
