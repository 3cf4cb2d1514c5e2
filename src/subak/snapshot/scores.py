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
    generation: int
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


class Scores:
    """The rows of the shapes that were asked for last."""

    def __init__(self, shapes: int = 512) -> None:
        self._most = shapes
        self._rows: OrderedDict[Request, list[Row]] = OrderedDict()

    def rows(self, request: Request, pools: list[Pool], prepare: Prepare) -> list[Row]:
        """One row for every pool that may take the request, not yet refreshed."""
        known = self._rows.get(request)
        if known is not None and all(row.generation == row.pool.generation for row in known):
            self._rows.move_to_end(request)
            return known
        made = []
        for pool in pools:
            evaluate = prepare(pool, request)
            if evaluate is not None:
                scores = evaluate(np.arange(len(pool), dtype=np.intp), True)
                made.append(Row(pool, evaluate, pool.generation, scores, len(pool.log), len(pool.changes)))
        self._rows[request] = made
        while len(self._rows) > self._most:
            self._rows.popitem(last=False)
        return made

    def forget(self) -> None:
        """Drop everything: the set of pools has changed."""
        self._rows.clear()
