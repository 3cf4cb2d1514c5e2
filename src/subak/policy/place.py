"""The decision: the best node that takes the whole pod, and the cards there.

Deterministic: the same state and the same request give the same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.columns import prepare
from subak.policy.on_node import on_node
from subak.snapshot.cluster import Snapshot
from subak.snapshot.scores import NEVER, Row


def place(snapshot: Snapshot, request: Request) -> Placement | None:
    """Where the pod goes, None if nowhere (then `explain` tells why).  Books nothing."""
    rows = snapshot.scores.rows(request, snapshot.pools, prepare)
    for row in rows:
        row.refresh()
    while (best := _best(rows)) is not None:
        row, at = best
        pool = row.pool
        grants = on_node(pool.nodes[at], pool.cards(at), request)
        if not isinstance(grants, Counter):
            return Placement(pool.names[at], grants)
        row.scores[at] = NEVER  # until something changes there
    return None


def _best(rows: Sequence[Row]) -> tuple[Row, int] | None:
    """The row and position of the best node; of equal ones in several pools the first by name, as within a pool."""
    best: tuple[Row, int] | None = None
    highest, name = NEVER, ""
    for row in rows:
        at = int(row.scores.argmax())
        score = row.scores.item(at)
        if score > highest or (score == highest != NEVER and row.pool.names[at] < name):
            best, highest, name = (row, at), score, row.pool.names[at]
    return best
