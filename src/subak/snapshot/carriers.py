"""Terms that running pods carry, and where: who comes later may be meant by them.

For a new pod all terms that mean it are found at once, with an index by labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from subak.model import manifest
from subak.model.selector import Pair, Term, pairs
from subak.snapshot.pool import Column
from subak.snapshot.topology import Counts, Topology

ANY = ("", "")
"""Stands for a label, where a term names none."""

Stated = tuple[Term, str, int]
"""A term, the label that makes its domains, and its weight."""


class Carried:
    """A term that running pods state, and how many of them run on each node."""

    def __init__(self, stated: Stated, topology: Topology) -> None:
        self.stated = stated
        self.term, self.key, self.weight = stated
        self.counts = Counts()
        self._topology = topology

    @property
    def by_node(self) -> Column:
        """How many pods carry it on each node, by the node's number."""
        return self.counts.column(self._topology.nodes.room)


class Carriers:
    """All terms of one sort that running pods state.  `news` grows when a term is the first of its kind."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.news = 0
        self._carried: dict[Stated, Carried] = {}
        self._for_label: dict[Pair, dict[Carried, None]] = {}

    def __len__(self) -> int:
        return len(self._carried)

    def count(self, stated: Stated, node: str, amount: int) -> None:
        """One pod more, or less, carries the term on this node."""
        carried = self._carried.get(stated)
        if carried is None:
            carried = self._carried[stated] = Carried(stated, self._topology)
            self.news += 1
            for pair in pairs(carried.term.selector) or (ANY,):
                self._for_label.setdefault(pair, {})[carried] = None
        carried.counts.add(self._topology.number(node), amount)
        if not carried.counts.total:
            del self._carried[stated]
            for pair in pairs(carried.term.selector) or (ANY,):
                del self._for_label[pair][carried]
                if not self._for_label[pair]:
                    del self._for_label[pair]

    def meaning(self, pod: manifest.Pod, namespace_labels: Mapping[str, str]) -> frozenset[Carried]:
        """The terms that mean this pod."""
        if not self._carried:
            return frozenset()
        labels = pod.labels
        found: list[Carried] = []
        for pair in (ANY, *labels.items()):
            found += self._for_label.get(pair, ())
        return frozenset([each for each in found if each.term.means(pod.namespace, namespace_labels, labels)])
