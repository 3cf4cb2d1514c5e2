"""The decision: the best node that takes the whole pod, and the cards there.

Deterministic: the same state and the same request give the same placement.
"""

from __future__ import annotations

from collections import Counter

from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.columns import prepare
from subak.policy.on_node import on_node
from subak.snapshot.cluster import Snapshot
from subak.snapshot.scores import NEVER


def place(snapshot: Snapshot, request: Request) -> Placement | None:
    """Where the pod goes, None if nowhere (then `explain` tells why).  Books nothing."""
    rows = snapshot.scores.rows(request, snapshot.pools, prepare)
    best = []
    for row in rows:
        scores = row.refresh()
        at = int(scores.argmax())
        best.append((int(scores[at]), at))
    while rows:
        # Equal scores in several pools: the first name wins, as it does within a pool.
        which = min(range(len(rows)), key=lambda i: (-best[i][0], rows[i].pool.names[best[i][1]]))
        value, at = best[which]
        if value == NEVER:
            return None
        pool, scores = rows[which].pool, rows[which].scores
        grants = on_node(pool.nodes[at], pool.cards(at), request)
        if not isinstance(grants, Counter):
            return Placement(pool.names[at], grants)
        scores[at] = NEVER  # until something changes there
        at = int(scores.argmax())
        best[which] = (int(scores[at]), at)
    return None
