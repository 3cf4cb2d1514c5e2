"""The decision: the best node that takes the whole pod, and the cards there.

The best node is the one that preferences give the most points, and of equal ones the one with the highest score.  In a
mixture (`policy.mixture`) both are added.
Deterministic: the same state and the same request give the same placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import numpy as np

from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy import Across, registry
from subak.policy.columns import prepare
from subak.policy.mixture import THOUSAND
from subak.policy.on_node import on_node
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Pool
from subak.snapshot.scores import NEVER, Row

Points = Mapping[Pool, Column]
"""For each node of a pool, position by position."""


def place(
    snapshot: Snapshot, request: Request, among: Sequence[str] | None = None, within: Set[str] | None = None
) -> Placement | None:
    """Where the pod goes, None if nowhere (then `explain` tells why).  Books nothing.

    `among` names the nodes to ask, where it is known that no other takes the pod: a few, and each is scored anew.
    `within` names the nodes that may be chosen: many, and the others are left out of the columns.
    """
    rows = snapshot.scores.rows(registry.local(request), snapshot.pools, prepare)
    across = registry.across(snapshot, request)
    points = _points(snapshot, rows, request, across)
    if among is not None:
        return _among(snapshot, rows, request, among, across, points)
    for row in rows:
        row.refresh()
    shut = {row.pool: _shut(row.pool, request, across) for row in rows} if across else None
    if within is not None:
        shut = _shut_outside(rows, within, shut)
    mixed = request.mixture is not None
    while (best := _best(rows, shut, points, mixed)) is not None:
        row, at = best
        node = row.pool.nodes[at]
        grants = on_node(node, row.pool.cards(at), request)
        if not isinstance(grants, Counter):
            return Placement(node.name, grants)
        row.strike_out(at)
    return None


def _among(
    snapshot: Snapshot,
    rows: Sequence[Row],
    request: Request,
    names: Sequence[str],
    across: Sequence[Across],
    points: Points | None,
) -> Placement | None:
    """The same for a few nodes, whatever the others are like."""
    row_of = {row.pool: row for row in rows}
    scored: list[tuple[int, int, str, Pool, int]] = []
    for name in names:
        home = snapshot.home(name)
        if home is not None and home[0] in row_of:
            pool, at = home
            if any(each.refuse(pool.nodes[at], request) is not None for each in across):
                continue
            score = row_of[pool].evaluator.scores(np.array([at], np.intp)).item()
            if score != NEVER:
                liked = 0 if points is None else points[pool][at].item()
                if request.mixture is not None:
                    liked, score = 0, score + liked * THOUSAND
                scored.append((-liked, -score, name, pool, at))
    for _, _, name, pool, at in sorted(scored, key=lambda each: each[:3]):
        grants = on_node(pool.nodes[at], pool.cards(at), request)
        if not isinstance(grants, Counter):
            return Placement(name, grants)
    return None


def _shut(pool: Pool, request: Request, across: Sequence[Across]) -> Bools:
    """The nodes that filters across nodes refuse now.  The row must not learn of it: it may change with any pod."""
    shut: Bools = ~np.logical_and.reduce([each.verdicts(pool, request).passes for each in across])
    return shut


def _shut_outside(rows: Sequence[Row], names: Set[str], shut: Mapping[Pool, Bools] | None) -> dict[Pool, Bools]:
    """The nodes that are shut, and those that have none of these names."""
    found: dict[Pool, Bools] = {}
    for row in rows:
        at = row.pool.positions(names)
        outside = found[row.pool] = np.ones(row.pool.room, bool)
        outside[at] = False if shut is None else shut[row.pool][at]
    return found


def _points(snapshot: Snapshot, rows: Sequence[Row], request: Request, across: Sequence[Across]) -> Points | None:
    """What preferences make of each node; None if none concerns the pod.

    The scale is that of all nodes that no filter refuses.  It must not depend on which cards are free: rows know that
    only as far as somebody has asked.
    """
    preferences = registry.preferences(snapshot, request)
    if not preferences:
        return None
    filters = [*registry.FILTERS.values(), *across]
    possible: dict[Pool, Bools] = {}
    for pool in [row.pool for row in rows]:
        passes = np.logical_and.reduce([each.verdicts(pool, request).passes for each in filters])
        passes[: pool.size] &= pool.present
        passes[pool.size :] = False
        possible[pool] = passes
    weights = {} if request.mixture is None else dict(request.mixture.preferences)
    given = [(weights.get(each.name, each.weight), each.points(request, possible)) for each in preferences]
    return {pool: np.add.reduce([weight * points[pool] for weight, points in given]) for pool in possible}


def _best(
    rows: Sequence[Row], shut: Mapping[Pool, Bools] | None, points: Points | None, mixed: bool
) -> tuple[Row, int] | None:
    """The row and position of the best node that is not shut; of equal ones the first by name.

    With `mixed` the points of preferences are added to the score, which has thousandths of them.
    """
    best: tuple[Row, int] | None = None
    best_rank, name = (0, NEVER), ""
    for row in rows:
        scores = row.scores if shut is None else np.where(shut[row.pool], NEVER, row.scores)
        liked = 0
        if points is not None and mixed:
            scores = np.where(scores == NEVER, NEVER, scores + points[row.pool] * THOUSAND)
        elif points is not None and (there := scores != NEVER).any():
            liked = points[row.pool][there].max().item()
            scores = np.where(points[row.pool] == liked, scores, NEVER)
        score = scores.max().item()
        if score == NEVER or (best is not None and (liked, score) < best_rank):
            continue
        ties = np.flatnonzero(scores == score)
        at = int(ties[row.pool.order[ties].argmin()]) if len(ties) > 1 else int(ties[0])
        if best is None or (liked, score) > best_rank or row.pool.nodes[at].name < name:
            best, best_rank, name = (row, at), (liked, score), row.pool.nodes[at].name
    return best
