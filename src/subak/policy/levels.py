"""What nodes would have free if less important pods left: in columns, kept up to date by the pools' logs.

For each limit one row a pool holds, for every node, what pods of at most that priority take of its cards and of the
node itself.  Added to what is free it tells, for all nodes at once, where room can be made.  The first time a limit is
used all pods are counted; later only those on nodes that changed.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from functools import partial

import numpy as np

from subak.model import manifest
from subak.model.node import Node
from subak.snapshot.cluster import Booking, Snapshot
from subak.snapshot.pool import CORES, IDLE, MEMORY, PLAIN, SLOTS, Column, Pool
from subak.snapshot.scores import Evaluator, Row, Where
from subak.snapshot.watcher import Watcher

MOST_LIMITS = 8
"""So many limits are kept in columns, and a search looks at no more of them."""

STATES = 5
"""Rows of `Pool.state`."""


class Levels(Watcher):
    """How many pods of each priority are booked."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        """Count the pod."""
        priority = pod.priority
        self._counts[priority] = self._counts.get(priority, 0) + 1

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        """Count it no more."""
        priority = pod.priority
        self._counts[priority] -= 1
        if not self._counts[priority]:
            del self._counts[priority]

    def node_seen(self, node: Node) -> None:
        """Nodes do not matter."""

    def node_gone(self, name: str) -> None:
        """Nodes do not matter."""

    @property
    def lowest(self) -> int | None:
        """The lowest priority that any pod has; None if there are no pods."""
        return min(self._counts, default=None)

    def limits(self, below: int) -> list[int]:
        """Priorities under this one, ascending, the highest among them; not all of them if there are many."""
        lower = sorted(priority for priority in self._counts if priority < below)
        step = -(-len(lower) // MOST_LIMITS) or 1
        return lower[::-1][::step][::-1]


class Relief:
    """What each node would get back."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rows: OrderedDict[tuple[Pool, int], Row] = OrderedDict()

    def without(self, pool: Pool, limit: int) -> Pool:
        """The pool as if all pods of at most this priority had left.  To look at, not to book on.

        What a node has of resources without a column is as it was.
        """
        figures = self._row(pool, limit).refresh()[:, : pool.size]
        emptier = copy(pool)
        emptier.state, emptier.plain = pool.state.copy(), pool.plain.copy()
        cards = len(pool.make)
        emptier.state[:, :, : pool.size] += figures[: STATES * cards].reshape(STATES, cards, pool.size)
        emptier.plain[:, : pool.size] += figures[STATES * cards :]
        return emptier

    def on(self, name: str, limit: int) -> tuple[Column, Column]:
        """The same for one node: what pods of at most this priority take of its cards, and of the node."""
        home = self._snapshot.home(name)
        assert home is not None, "the node is there"
        pool, at = home
        figures, cards = self._count(pool, limit, np.array([at], np.intp))[:, 0], len(pool.make)
        return figures[: STATES * cards].reshape(STATES, cards), figures[STATES * cards :]

    def _row(self, pool: Pool, limit: int) -> Row:
        row = self._rows.get((pool, limit))
        if row is None:
            evaluator = Evaluator(partial(self._count, pool, limit), one_by_one=True)
            figures = np.zeros((STATES * len(pool.make) + len(PLAIN), pool.room), np.int64)
            row = self._rows[pool, limit] = Row(pool, evaluator, figures)
        self._rows.move_to_end((pool, limit))
        while len(self._rows) > MOST_LIMITS * len(self._snapshot.pools):
            self._rows.popitem(last=False)
        return row

    def _count(self, pool: Pool, limit: int, where: Where) -> Column:
        positions = range(pool.size)[where] if isinstance(where, slice) else where.tolist()
        figures = np.zeros((STATES * len(pool.make) + len(PLAIN), len(positions)), np.int64)
        bookings = self._snapshot.bookings
        for column, at in enumerate(positions):
            node = pool.nodes[at]
            total = [0] * len(figures)
            for key in self._snapshot.pods_on(node.name):
                booking = bookings[key]
                if booking.pod is not None and booking.pod.priority <= limit:
                    _add(total, booking, node, len(pool.make))
            figures[:, column] = total
        return figures


def _add(total: list[int], booking: Booking, node: Node, cards: int) -> None:
    for id, charge in booking.charges.items():
        row = node.row(id)
        if row is not None:
            total[SLOTS * cards + row] += charge.slots
            total[MEMORY * cards + row] += charge.memory_bytes
            total[CORES * cards + row] += charge.cores
            total[IDLE * cards + row] += charge.shares
    for name, amount in booking.resources:
        if name in PLAIN:
            total[STATES * cards + PLAIN.index(name)] += amount
