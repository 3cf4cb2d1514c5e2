"""Scores remembered per shape of request.

Pods come in few shapes.  For each shape and pool one row holds the score of every node, as it was when the row was last
read; the pool's logs say which nodes changed since, and only those are scored again.  So the cost of a decision does
not grow with the cluster, apart from one pass for the maximum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from subak.model.request import Request
from subak.snapshot.pool import Column, Pool

NEVER = np.iinfo(np.int64).min
"""The score of a node that cannot take the shape."""

Positions = npt.NDArray[np.intp]
Evaluate = Callable[[Positions, bool], Column]
"""Scores of the nodes at these positions; the flag says that their description changed, not only their use."""


@dataclass(slots=True)
class Row:
    """The scores of one shape in one pool."""

    pool: Pool
    evaluate: Evaluate
    scores: Column
    seen: int
    seen_changes: int

    def refresh(self) -> Column:
        """The scores as of now."""
        pool = self.pool
        if len(pool.changes) > self.seen_changes:
            self._score(pool.changes[self.seen_changes :], True)
            self.seen_changes = len(pool.changes)
        if len(pool.log) > self.seen:
            self._score(pool.log[self.seen :], False)
            self.seen = len(pool.log)
        return self.scores

    def _score(self, touched: list[int], changed: bool) -> None:
        at = np.array(list(dict.fromkeys(touched)), np.intp)
        self.scores[at] = self.evaluate(at, changed)


Prepare = Callable[[Pool, Request], Evaluate | None]
"""Makes the evaluator of a shape for a pool, None if no node of the pool's make can ever take it."""


MOST_SHAPES = 512
MOST_CELLS = 1 << 24
"""Rows are kept for so many shapes, or as many as these cells (128 MiB) hold."""


class Scores:
    """The rows of the shapes that were asked for last."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Request, tuple[list[int], list[Row]]] = OrderedDict()
        self._cells = 0

    def rows(self, request: Request, pools: list[Pool], prepare: Prepare) -> list[Row]:
        """One row for every pool that may take the request, not yet refreshed."""
        generations = [pool.generation for pool in pools]
        known = self._rows.get(request)
        if known is not None:
            if known[0] == generations:
                self._rows.move_to_end(request)
                return known[1]
            self._drop(request)
        made = []
        for pool in pools:
            evaluate = prepare(pool, request)
            if evaluate is not None:
                scores = evaluate(np.arange(len(pool), dtype=np.intp), False)
                made.append(Row(pool, evaluate, scores, len(pool.log), len(pool.changes)))
        self._rows[request] = (generations, made)
        self._cells += _cells(made)
        while len(self._rows) > 1 and (len(self._rows) > MOST_SHAPES or self._cells > MOST_CELLS):
            self._drop(next(iter(self._rows)))
        return made

    def _drop(self, request: Request) -> None:
        _, rows = self._rows.pop(request)
        self._cells -= _cells(rows)

    def forget(self) -> None:
        """Drop everything: the set of pools has changed."""
        self._rows.clear()
        self._cells = 0


def _cells(rows: list[Row]) -> int:
    return sum(len(row.scores) for row in rows)
