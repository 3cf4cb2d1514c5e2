"""The decision: the best node that takes the whole pod, and the cards there.

Deterministic: the same state and the same request give the same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

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
        node = row.pool.nodes[at]
        grants = on_node(node, row.pool.cards(at), request)
        if not isinstance(grants, Counter):
            return Placement(node.name, grants)
        row.scores[at] = NEVER  # until something changes there
    return None


def _best(rows: Sequence[Row]) -> tuple[Row, int] | None:
    """The row and position of the best node; of equal ones the first by name."""
    best: tuple[Row, int] | None = None
    highest, name = NEVER, ""
    for row in rows:
        score = row.scores.max().item()
        if score == NEVER or score < highest:
            continue
        ties = np.flatnonzero(row.scores == score)
        at = int(ties[row.pool.order[ties].argmin()]) if len(ties) > 1 else int(ties[0])
        if score > highest or row.pool.nodes[at].name < name:
            best, highest, name = (row, at), score, row.pool.nodes[at].name
    return best
