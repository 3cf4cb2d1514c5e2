"""Koordinator's scores LeastAllocated and MostAllocated, for one card and for all cards of a node.

    requested = total - free + ask
    Least     = (total - requested) * 100 / total     (0 if more is requested than there is)
    Most      = min(requested, total) * 100 / total
    score     = mean over memory ratio and memory, as far as there is any; whole numbers, rounded down

A request names ratio or memory, never both, and the other one's ask is then 0: half of an idle card of 16 GiB scores
(50 + 100) / 2 = 75 under Least.  A node is scored by sums over its cards, with the ask of one card.  RDMA and FPGA have
no memory; their percentages stand in the place of the ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from subak.model.card import CardState
from subak.model.node import Node
from subak.model.placement import Grant
from subak.model.request import MOST_ALLOCATED, Claim, Request
from subak.policy import NodeScore
from subak.policy.score import use
from subak.snapshot.pool import ALIVE, CORES, MEMORY, Column, Pool
from subak.snapshot.scores import Evaluator, Row, Where, shared


@dataclass(frozen=True)
class Allocated(NodeScore):
    """The strategy of this name, for nodes.  A pod without cards goes to the fullest node."""

    name: str

    def score(self, node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
        return node_score(cards, request.claims[0], self.name) if request.claims else use(cards)

    def column(self, pool: Pool, request: Request) -> Callable[[Where], Column]:
        if not request.claims:
            return lambda at: pool.usage[at]
        claim, totals = request.claims[0], sums(pool, request.claims[0])
        return lambda at: node_scores(totals.refresh()[:, at], claim, self.name)


def allocated_score(
    *,
    total_ratio: int,
    free_ratio: int,
    total_memory: int,
    free_memory: int,
    ask_ratio: int,
    ask_memory: int,
    strategy: str,
) -> int:
    """How well a card, or a node by its sums, suits the strategy: 0 to 100."""
    scores = [
        resource_score(total, free, ask, strategy)
        for total, free, ask in ((total_ratio, free_ratio, ask_ratio), (total_memory, free_memory, ask_memory))
        if total > 0
    ]
    return sum(scores) // len(scores) if scores else 0


def resource_score(total: int, free: int, ask: int, strategy: str) -> int:
    """The score by one resource of which there is some."""
    requested = total - free + ask
    if strategy == MOST_ALLOCATED:
        return min(requested, total) * 100 // total
    return max(total - requested, 0) * 100 // total


def ratio_of(memory: int, total: int) -> int:
    """Memory as a percentage of a card, rounded up.

    The ledger keeps bytes.  A share asked for in percent was rounded down to bytes, so that rounding up restores the
    percentage exactly.
    """
    return -(-memory * 100 // total) if total else 0


def card_score(card: CardState, claim: Claim, strategy: str) -> int:
    """The score of one card for one of the claim's shares."""
    return node_score((card,), claim, strategy)


def node_score(cards: Iterable[CardState], claim: Claim, strategy: str) -> int:
    """The score of a node with these cards, of which those count that the claim could mean."""
    total_ratio = free_ratio = total_memory = free_memory = 0
    for card in cards:
        device = card.device
        if device.family not in claim.families or not device.healthy or device.cordoned:
            continue
        total_memory += device.memory_bytes
        free_memory += max(card.memory_free, 0)
        total_ratio += 100 if device.memory_bytes else device.cores
        free_ratio += max(_free_ratio(card), 0)
    ask_ratio, ask_memory = _ask(claim)
    return allocated_score(
        total_ratio=total_ratio,
        free_ratio=free_ratio,
        total_memory=total_memory,
        free_memory=free_memory,
        ask_ratio=ask_ratio,
        ask_memory=ask_memory,
        strategy=strategy,
    )


def _free_ratio(card: CardState) -> int:
    total = card.device.memory_bytes
    return 100 - ratio_of(card.memory_used, total) if total else card.cores_free


def _ask(claim: Claim) -> tuple[int, int]:
    if claim.memory_bytes or claim.memory_percent:
        return claim.memory_percent, claim.memory_bytes
    return claim.cores, 0


def sums(pool: Pool, claim: Claim) -> Row:
    """For each node the sums over the cards that the claim could mean: ratio, free ratio, memory and free memory."""
    rows = [row for row, (family, _) in enumerate(pool.make) if family in claim.families]
    return shared(pool, ("sums", *rows), lambda: Evaluator(partial(_sums, pool, rows)), (4,))


def _sums(pool: Pool, rows: list[int], at: Where) -> Column:
    works, room, cores_room = (pool.state[each][:, at][rows] for each in (ALIVE, MEMORY, CORES))
    alive = works > 0
    memory, cores = pool.memory[:, at][rows] * alive, pool.cores[:, at][rows] * alive
    free, cores_free = np.maximum(room, 0) * alive, np.maximum(cores_room, 0) * alive
    used_ratio = -((free - memory) * 100 // np.maximum(memory, 1))
    ratio = np.where(memory > 0, 100, cores)
    free_ratio = np.where(memory > 0, 100 - used_ratio, cores_free)
    return np.stack([each.sum(axis=0) for each in (ratio, free_ratio, memory, free)])


def node_scores(totals: Column, claim: Claim, strategy: str) -> Column:
    """`node_score` for many nodes at once, by their sums."""
    ratio, free_ratio, memory, free = totals
    ask_ratio, ask_memory = _ask(claim)
    scores = _column_score(ratio, free_ratio, ask_ratio, strategy) + _column_score(memory, free, ask_memory, strategy)
    kinds = (ratio > 0).astype(np.int64) + (memory > 0)
    mean: Column = scores // np.maximum(kinds, 1)
    return mean


def _column_score(total: Column, free: Column, ask: int, strategy: str) -> Column:
    """`resource_score` for many nodes; 0 where there is none of the resource."""
    requested = total - free + ask
    taken = np.minimum(requested, total) if strategy == MOST_ALLOCATED else np.maximum(total - requested, 0)
    score: Column = taken * 100 // np.maximum(total, 1)
    return score
