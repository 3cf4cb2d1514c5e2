"""Nodes by number, and the domains that their labels make: all nodes of a zone, of a rack, or each node by itself.

Counters across nodes are arrays with one entry for each node (`Counts`), whatever pool the node is in.  A label makes
domains of the nodes that have the same value of it (`Domains`), and numpy adds up an array by domain:

    counts of pods by node ── domains.sums ──> by domain ── [domains.of] ──> by node again: pods in the node's domain

Entry 0 stands for no node, and domain 0 for nodes without the label.  Numbers of nodes that are gone are given again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Self
from weakref import WeakKeyDictionary

import numpy as np

from subak.model import manifest
from subak.model.node import Node
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Figures, Pool
from subak.snapshot.watcher import Watcher

_FIRST_ROOM = 16


class Numbers:
    """Small numbers for names, from 1 on."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._free: list[int] = []
        self.room = _FIRST_ROOM
        """Arrays of this length have an entry for each number."""

    def get(self, name: str) -> int:
        """The name's number, 0 if it has none."""
        return self._of.get(name, 0)

    def give(self, name: str) -> int:
        """The name's number; a new one if it has none."""
        number = self._of.get(name)
        if number is None:
            number = self._of[name] = self._free.pop() if self._free else len(self._of) + 1
            while number >= self.room:
                self.room *= 2
        return number

    def take_back(self, name: str) -> int:
        """The name needs its number no more, which may be given to another."""
        number = self._of.pop(name)
        self._free.append(number)
        return number


class Counts:
    """A count for each number, and their sum."""

    __slots__ = ("_values", "total")

    def __init__(self) -> None:
        self.total = 0
        self._values: Column = np.zeros(_FIRST_ROOM, np.int64)

    def add(self, number: int, amount: int) -> None:
        """Count so many more, or less."""
        if number >= len(self._values):
            self._grow(number + 1)
        self._values[number] += amount
        self.total += amount

    def column(self, room: int) -> Column:
        """The counts of the first so many numbers."""
        if room > len(self._values):
            self._grow(room)
        return self._values[:room]

    def _grow(self, room: int) -> None:
        more = max(room, 2 * len(self._values)) - len(self._values)
        self._values = np.append(self._values, np.zeros(more, np.int64))


class Domains:
    """The domains that one label makes."""

    def __init__(self, key: str, nodes: Numbers) -> None:
        self.key = key
        self._nodes = nodes
        self._numbers = Numbers()
        self._members: Counter[str] = Counter()
        self._of = Counts()

    @property
    def of(self) -> Column:
        """The domain of each node, 0 for nodes without the label."""
        return self._of.column(self._nodes.room)

    def join(self, node: int, value: str | None, before: str | None) -> None:
        """The node has this value now, after another; None for no label."""
        if before is not None:
            self._of.add(node, -self._numbers.get(before))
            self._members[before] -= 1
            if not self._members[before]:
                del self._members[before]
                self._numbers.take_back(before)
        if value is not None:
            self._members[value] += 1
            self._of.add(node, self._numbers.give(value))

    def sums(self, counts: Column | Bools) -> Column:
        """What the counts of nodes add up to in each domain; 0 for domain 0."""
        total = np.bincount(self.of, weights=counts, minlength=self._numbers.room).astype(np.int64)
        total[0] = 0
        return total


class Topology(Watcher):
    """All nodes, by number and by domain.  `moment` is another after every event, rollbacks included."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.moment = 0
        self.nodes = Numbers()
        self._labels: dict[str, Mapping[str, str]] = {}
        self._pods: Counter[str] = Counter()
        self._idle: set[str] = set()
        self._domains: dict[str, Domains] = {}
        self._in_pool: WeakKeyDictionary[Pool, Figures] = WeakKeyDictionary()

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def positions(self, pool: Pool) -> Column:
        """The number of the node at each position of a pool, 0 where it is vacant."""
        figures = self._in_pool.get(pool)
        if figures is None:
            figures = self._in_pool[pool] = pool.figures(lambda node: self.nodes.give(node.name))
        return figures.values

    def domains(self, key: str) -> Domains:
        """The domains of a label; they are kept up to date from now on."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(key, self.nodes)
            for name, labels in self._labels.items():
                found.join(self.nodes.give(name), labels.get(key), None)
        return found

    def number(self, name: str) -> int:
        """The number of a node, which may not be known yet."""
        return self.nodes.give(name)

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self.moment += 1
        self._pods[node] += 1
        self.nodes.give(node)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self.moment += 1
        self._pods[node] -= 1
        if not self._pods[node]:
            del self._pods[node]
            self._idle.add(node)

    def node_seen(self, node: Node) -> None:
        self.moment += 1
        if node.name not in self._labels:
            self._reclaim()
        self._move(node.name, self._labels.get(node.name, {}), node.labels)
        self._labels[node.name] = node.labels

    def node_gone(self, name: str) -> None:
        self.moment += 1
        self._move(name, self._labels.pop(name), {})
        self._idle.add(name)

    def namespace_seen(self, name: str, labels: Mapping[str, str]) -> None:
        self.moment += 1

    def namespace_gone(self, name: str) -> None:
        self.moment += 1

    def _move(self, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        number = self.nodes.give(name)
        for key, domains in self._domains.items():
            old, new = before.get(key), after.get(key)
            if old != new:
                domains.join(number, new, old)
                self._snapshot.note(domains)

    def _reclaim(self) -> None:
        """Take back numbers that nobody needs.  Not before the next new node: others may still count by them."""
        for name in self._idle:
            if name not in self._labels and name not in self._pods and self.nodes.get(name):
                self.nodes.take_back(name)
        self._idle.clear()
