"""Scores remembered per shape of request.

Pods come in few shapes.  For each shape and pool one row holds the score of every node, as it was when the row was last
read; the pool's log says which nodes changed since, and only those are scored again.  So the cost of a decision does
not grow with the cluster, apart from one pass for the maximum.  A shape that comes rarely finds that most nodes have
changed: then all are scored at once, which in columns costs little more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import numpy as np

from subak.model.request import Request
from subak.snapshot.pool import NOTHING, Column, Pool, Positions

NEVER = NOTHING
"""The score of a node that cannot take the shape."""

Where = Positions | slice
"""Some nodes, or with a slice all of them."""

MANY = 8
"""All nodes are scored at once if more than one in so many may have changed."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Scores the nodes at some positions.  With `one_by_one` each costs so much that only those that changed are."""

    scores: Callable[[Where], Column]
    one_by_one: bool = False


@dataclass(slots=True, weakref_slot=True, eq=False)
class Row:
    """Figures of every node of a pool, the last axis being the node: the scores of one shape, or what shapes share."""

    pool: Pool
    evaluator: Evaluator
    scores: Column
    seen: int = 0
    generation: int = -1

    def refresh(self) -> Column:
        """The scores as of now."""
        pool = self.pool
        if self.scores.shape[-1] < pool.room:
            more = np.full((*self.scores.shape[:-1], pool.room - self.scores.shape[-1]), NEVER, np.int64)
            self.scores = np.concatenate((self.scores, more), axis=-1)
        behind = len(pool.log) - self.seen
        if self.generation != pool.generation or (behind * MANY > pool.size and not self.evaluator.one_by_one):
            self._write(slice(0, pool.size), self.evaluator.scores(slice(0, pool.size)))
        elif behind:
            at = np.array(list(dict.fromkeys(pool.log[self.seen :])), np.intp)
            self._write(at, self.evaluator.scores(at))
        self.seen, self.generation = len(pool.log), pool.generation
        return self.scores

    def strike_out(self, at: int) -> None:
        """The node refuses the shape, until something changes there."""
        self._write(at, NEVER)

    def _write(self, at: Where | int, scores: Column | int) -> None:
        if self.pool.journal.depth:
            self.pool.journal.note(partial(self._undo, at, self.scores[..., at].copy(), self.seen, self.generation))
        self.scores[..., at] = scores

    def _undo(self, at: Where | int, scores: Column, seen: int, generation: int) -> None:
        self.scores[..., at] = scores
        self.seen, self.generation = seen, generation


def shared(pool: Pool, key: Hashable, evaluator: Callable[[], Evaluator], figures: tuple[int, ...] = ()) -> Row:
    """A row of so many figures a node that several shapes have in common; kept while one of them is."""
    row = pool.shared.get(key)
    if row is None:
        row = pool.shared[key] = Row(pool, evaluator(), np.full((*figures, pool.room), NEVER, np.int64))
    return row


Prepare = Callable[[Pool, Request], Evaluator | None]
"""Makes the evaluator of a shape for a pool, None if no node of the pool's make can ever take it."""


MOST_SHAPES = 4_096
MOST_CELLS = 1 << 24
"""Rows are kept for so many shapes, or as many as these cells (128 MiB) hold."""


class Scores:
    """The rows of the shapes that were asked for last."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Request, dict[Pool, Row | None]] = OrderedDict()

    def rows(self, request: Request, pools: list[Pool], prepare: Prepare) -> list[Row]:
        """One row for every pool that may take the request, not yet refreshed."""
        known = self._rows.get(request)
        if known is None:
            known = self._rows[request] = {}
        else:
            self._rows.move_to_end(request)
        for pool in pools:
            if pool not in known:
                evaluator = prepare(pool, request)
                known[pool] = None if evaluator is None else Row(pool, evaluator, np.full(pool.room, NEVER, np.int64))
        most = min(MOST_SHAPES, MOST_CELLS // max(sum(pool.room for pool in pools), 1))
        while len(self._rows) > max(most, 1):
            self._rows.popitem(last=False)
        return [row for pool in pools if (row := known[pool]) is not None]

    def forget(self, pool: Pool) -> None:
        """Drop the rows of a pool that is no more."""
        for rows in self._rows.values():
            rows.pop(pool, None)
