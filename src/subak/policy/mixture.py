"""A node score mixed of several by weights, as Volcano's `nodeorder`, `binpack` and `deviceshare` have it.

    least     mean over cpu and memory of (total - used - asked) * 100 / total       each rounded down
    most      mean of (used + asked) * 100 / total                                   each rounded down
    balanced  50 + (50 + even after the pod - even before) / 2, where even = (1 - deviation of the used parts) * 100,
              of cpu, memory, and the slots of cards if the pod takes some
    packing   mean, weighted, of (used + asked) / total * 100 of the `packed` resources; 0 if there is too little of one
    cards     for each card that the pod would get: how full it would be (binpack), or 100 if nobody uses it (spread)

The points of cards need the very grants (`columns.prepare` adds them).  Preferences are added with the weights of the
mixture (`policy.place`).  All is counted in thousandths of a point.  What pods that run on a node did not ask for does
not count there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from subak.model.card import CardState
from subak.model.node import Node
from subak.model.placement import Grant, charges
from subak.model.request import BINPACK, Request
from subak.policy import NodeScore
from subak.snapshot.pool import CORES, IDLE, MEMORY, PLAIN, SLOTS, Column, Pool
from subak.snapshot.scores import Where

THOUSAND = 1_000
HUNDRED = 100
CPU, RAM = "cpu", "memory"

Reals = npt.NDArray[np.float64]


class Mixed(NodeScore):
    """The score of requests that have a mixture."""

    name = "mixed"

    def score(self, node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
        """What the cards add to what columns tell: only columns know what else a node runs."""
        assert request.mixture is not None, "it scores requests that have a mixture"
        return request.mixture.cards * card_points(cards, grants, request.mixture.card_policy)

    def column(self, pool: Pool, request: Request) -> Callable[[Where], Column]:
        mixture = request.mixture
        assert mixture is not None, "it scores requests that have a mixture"
        names = dict.fromkeys((CPU, RAM, *(each.name for each in mixture.packed)))
        slots = _slots(pool, request) if mixture.balanced else None
        amounts = {name: Amount(pool, name) for name in (*names, *(slots or ()))}
        asked = {CPU: mixture.cpu, RAM: mixture.memory}

        def scores(at: Where) -> Column:
            known = {name: (amount.total(at), amount.used(at)) for name, amount in amounts.items()}
            plain = [(*known[name], asked[name]) for name in (CPU, RAM)]
            total = mixture.least * least(plain) + mixture.most * most(plain)
            if mixture.balanced:
                parts = plain + [(*known[name], amount) for name, amount in (slots or {}).items()]
                total += mixture.balanced * balanced(parts)
            total *= THOUSAND
            if mixture.packing:
                filled = [(*known[each.name], each.asked, each.weight) for each in mixture.packed]
                total += np.floor(packing(filled) * (THOUSAND * mixture.packing)).astype(np.int64)
            return total

        return scores


class Amount:
    """How much of a resource each node of a pool has, and how much of that pods hold."""

    def __init__(self, pool: Pool, name: str) -> None:
        self._pool = pool
        self._name = name
        family, _, self._kind = name.rpartition("/")
        self._rows = [row for row, (each, _) in enumerate(pool.make) if each == family and self._kind in _OF_CARDS]
        self._totals = pool.figures(
            partial(_of_cards, rows=self._rows, kind=self._kind) if self._rows else self._of_node
        )

    def total(self, at: Where) -> Column:
        """What the nodes have."""
        return self._totals.values[at]

    def used(self, at: Where) -> Column:
        """What is held of it."""
        pool, total = self._pool, self.total(at)
        if self._rows and self._kind == "cards":
            taken: Column = (pool.state[IDLE][:, at][self._rows] < 0).sum(axis=0)
            return taken
        if self._rows:
            free: Column = pool.state[_STATES[self._kind]][:, at][self._rows].sum(axis=0)
            return total - free
        if self._name in PLAIN:
            return np.where(total > 0, total - pool.plain[PLAIN.index(self._name)][at], 0)
        positions = range(pool.size)[at] if isinstance(at, slice) else at.tolist()
        return np.fromiter((pool.resources[each].get(self._name, 0) for each in positions), np.int64, len(positions))

    def _of_node(self, node: Node) -> int:
        return node.allocatable.get(self._name, 0)


_STATES = {"memory": MEMORY, "cores": CORES, "slots": SLOTS}
_OF_CARDS = (*_STATES, "cards")


def _of_cards(node: Node, rows: Sequence[int], kind: str) -> int:
    """The sum over some cards of a node."""
    cards = [node.devices[row] for row in rows]
    match kind:
        case "memory":
            return sum(card.memory_bytes for card in cards)
        case "cores":
            return sum(card.cores for card in cards)
        case "slots":
            return sum(card.slots for card in cards)
        case _:
            return len(cards)


# Each takes totals, what is used, and what is asked for.

Parts = Sequence[tuple[Column, Column, int]]


def least(parts: Parts) -> Column:
    """The emptier the better."""
    scores = [
        np.where(used + asked <= total, (total - used - asked) * HUNDRED // np.maximum(total, 1), 0)
        for total, used, asked in parts
    ]
    return _mean(scores, parts)


def most(parts: Parts) -> Column:
    """The fuller the better."""
    scores = [np.minimum(used + asked, total) * HUNDRED // np.maximum(total, 1) for total, used, asked in parts]
    return _mean(scores, parts)


def _mean(scores: Sequence[Column], parts: Parts) -> Column:
    """Over the resources that a node has."""
    kinds = np.add.reduce([(total > 0).astype(np.int64) for total, _, _ in parts])
    mean: Column = np.add.reduce(scores) // np.maximum(kinds, 1)
    return mean


def balanced(parts: Parts) -> Column:
    """The more evenly resources are used the better, and better still if the pod helps."""
    after = _even([(total, used + asked) for total, used, asked in parts])
    before = _even([(total, used) for total, used, _ in parts])
    score: Column = HUNDRED // 2 + (HUNDRED // 2 + after - before) // 2
    return score


def _even(parts: Sequence[tuple[Column, Column]]) -> Column:
    there: Reals = np.array([total > 0 for total, _ in parts], np.float64)
    used: Reals = np.array([np.minimum(held / np.maximum(total, 1), 1.0) for total, held in parts]) * there
    kinds = np.maximum(there.sum(axis=0), 1)
    mean = used.sum(axis=0) / kinds
    deviation = np.sqrt((((used - mean) ** 2) * there).sum(axis=0) / kinds)
    even: Column = np.floor((1 - deviation) * HUNDRED + 1e-9).astype(np.int64)
    return even


def packing(filled: Sequence[tuple[Column, Column, int, int]]) -> Reals:
    """The fuller the better; each resource has its weight besides, also on nodes that have none of it."""
    asked = [each for each in filled if each[2] > 0]
    if not asked or not sum(weight for *_, weight in asked):
        return np.zeros(filled[0][0].shape if filled else 1)
    enough = np.logical_and.reduce([(total == 0) | (used + amount <= total) for total, used, amount, _ in asked])
    parts = [
        weight * np.where(total > 0, (used + amount) / np.maximum(total, 1), 0.0)
        for total, used, amount, weight in asked
    ]
    score: Reals = np.where(enough, np.add.reduce(parts) / sum(weight for *_, weight in asked), 0.0) * HUNDRED
    return score


def _slots(pool: Pool, request: Request) -> dict[str, int]:
    """The slots of cards that the pod takes, by family."""
    taken: dict[str, int] = {}
    for claim in request.claims:
        for family, _ in dict.fromkeys(pool.make):
            if claim.slotted and family in claim.families:
                taken[f"{family}/slots"] = taken.get(f"{family}/slots", 0) + claim.count
    return taken


def card_points(cards: Sequence[CardState], grants: Sequence[Grant], card_policy: str) -> int:
    """What these cards are worth to a pod, in thousandths of a point."""
    known = {card.device.id: card for card in cards}
    total = 0
    for id, charge in charges(grants).items():
        card = known[id]
        if card_policy == BINPACK:
            memory = card.device.memory_bytes
            total += (card.memory_used + charge.memory_bytes) * HUNDRED * THOUSAND // memory if memory else 0
        elif not card.tenants:
            total += HUNDRED * THOUSAND
    return total
