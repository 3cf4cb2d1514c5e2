"""On which nodes a claim finds a volume that is there already, in columns.

Local disks are as many as nodes, and every pod of a set asks for the same.  So for each such ask and pool one column
holds which nodes have a volume for it.  A log names the hosts on which a volume came, went or was promised: only those
are looked at again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from subak.model.node import Node
from subak.model.volume import Terms
from subak.policy.volumes.reach import lines
from subak.policy.volumes.storage import ANYWHERE, hosts
from subak.policy.volumes.supply import Ask
from subak.snapshot.pool import Bools, Pool

MOST_ASKS = 64
LONGEST_LOG = 1 << 16
"""Then the log starts anew, and all nodes are looked at."""


@dataclass(slots=True)
class Shelf:
    """Which nodes of a pool have a volume, as of a position in the log."""

    there: Bools
    seen: int
    generation: int


class Shelves:
    """The columns of the asks that came last.  `find` says whether a node has a volume for an ask."""

    def __init__(self, nodes: dict[str, dict[str, None]], find: Callable[[Node, Ask], bool]) -> None:
        self._nodes = nodes
        self._find = find
        self._log: list[str] = []
        self._generation = 0
        self._shelves: OrderedDict[Hashable, dict[Pool, Shelf]] = OrderedDict()

    def touch(self, terms: Terms | None) -> None:
        """A volume with this affinity came, went or was promised."""
        for host in hosts(terms):
            if host == ANYWHERE:
                self._start_anew()
                return
            for name in self._nodes.get(host, ()):
                self.touch_node(name)

    def touch_node(self, name: str) -> None:
        """A node came or changed, or a volume there."""
        self._log.append(name)
        if len(self._log) > LONGEST_LOG:
            self._start_anew()

    def there(self, pool: Pool, ask: Ask) -> Bools:
        """The positions of nodes that have a volume for the ask."""
        shelf = self._shelf(pool, ask)
        if shelf.generation != self._generation or len(shelf.there) < pool.room:
            shelf.there = np.zeros(pool.room, np.bool_)
            names = [pool.nodes[at].name for at in pool]
        else:
            names = list(dict.fromkeys(self._log[shelf.seen :]))
        for name in names:
            at = pool.position(name)
            if at is not None:
                shelf.there[at] = self._find(pool.nodes[at], ask)
        shelf.seen, shelf.generation = len(self._log), self._generation
        return shelf.there

    def _shelf(self, pool: Pool, ask: Ask) -> Shelf:
        selector = None if ask.selector is None else lines(ask.selector)
        key = (ask.claim.class_name, ask.size, ask.kind, ask.modes, selector)
        shelves = self._shelves.setdefault(key, {})
        self._shelves.move_to_end(key)
        if len(self._shelves) > MOST_ASKS:
            self._shelves.popitem(last=False)
        if pool not in shelves:
            shelves[pool] = Shelf(np.zeros(0, np.bool_), 0, -1)
        return shelves[pool]

    def _start_anew(self) -> None:
        self._log.clear()
        self._generation += 1
