"""How many pods of some description run on each node, counted by events.

Selectors cannot tell apart pods of the same namespace with the same labels: these are one `Kind`.  A `Query` is a
question that somebody asks again and again: how many pods do these terms mean, by node?  Which kinds a query means is
found out once, when one of the two is new, with an index by labels; so a pod that comes or goes costs one addition for
each query that means it.  Whenever an answer changes, the query joins the snapshot's `changes`.

A query is kept while somebody keeps the object, as requests do that read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from subak.model import manifest
from subak.model.selector import Pair, Term, pairs
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Column
from subak.snapshot.topology import Counts, Topology
from subak.snapshot.watcher import Watcher

Terms = tuple[Term, ...]
Alike = tuple[str | bool, ...]
"""Namespace, whether the pods are being deleted, the keys of their labels, and the values in the same order."""

Key = TypeVar("Key")

_NOTHING: Mapping[str, str] = {}


class Query:
    """The pods that all `terms` mean; with `living` only those that are not being deleted."""

    def __init__(self, terms: Terms, living: bool, topology: Topology) -> None:
        self.terms = terms
        self.living = living
        self.counts = Counts()
        self._topology = topology

    @property
    def by_node(self) -> Column:
        """How many of them run on each node, by the node's number."""
        return self.counts.column(self._topology.nodes.room)


class Kind:
    """Pods that no selector can tell apart: how many run on each node, and which queries mean them."""

    __slots__ = ("labels", "namespace", "nodes", "queries", "terminating")

    def __init__(self, namespace: str, labels: Mapping[str, str], terminating: bool) -> None:
        self.namespace = namespace
        self.labels = labels
        self.terminating = terminating
        self.nodes: dict[int, int] = {}
        self.queries: WeakSet[Query] | None = None

    def join(self, query: Query) -> None:
        """The query means these pods from now on."""
        self.queries = self.queries or WeakSet()
        self.queries.add(query)
        for node, count in self.nodes.items():
            query.counts.add(node, count)

    def leave(self, query: Query) -> None:
        """The query means them no more."""
        if self.queries is not None and query in self.queries:
            self.queries.discard(query)
            for node, count in self.nodes.items():
                query.counts.add(node, -count)


class Census(Watcher):
    """All pods that have a node, by kind."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.topology = snapshot.watched(Topology)
        self._kinds: dict[Alike, Kind] = {}
        self._with_label: dict[Pair, dict[Kind, None]] = {}
        self._in_namespace: dict[str, dict[Kind, None]] = {}
        self._queries: WeakValueDictionary[tuple[Terms, bool], Query] = WeakValueDictionary()
        self._for_label: dict[Pair, WeakSet[Query]] = {}
        self._for_any: WeakSet[Query] = WeakSet()

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def query(self, *terms: Term, living: bool = False) -> Query:
        """The answer to this question, kept up to date."""
        found = self._queries.get((terms, living))
        if found is None:
            found = self._queries[terms, living] = Query(terms, living, self.topology)
            for place in self._places(found):
                place.add(found)
            for kind in list(self._candidates(terms[0])):
                if self._means(found, kind):
                    kind.join(found)
        return found

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace."""
        return self._snapshot.namespaces.get(namespace, _NOTHING)

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self._count(pod, node, 1)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self._count(pod, node, -1)

    def namespace_seen(self, name: str, labels: Mapping[str, str]) -> None:
        for kind in self._in_namespace.get(name, ()):
            for query in list(self._queries.values()):
                if any(term.namespace_selector is not None for term in query.terms):
                    kind.leave(query)
                    if self._means(query, kind):
                        kind.join(query)

    def namespace_gone(self, name: str) -> None:
        self.namespace_seen(name, _NOTHING)

    def _count(self, pod: manifest.Pod, node: str, amount: int) -> None:
        labels, terminating = pod.labels, pod.metadata.deletion_timestamp is not None
        alike: Alike = (pod.namespace, terminating, *labels, *labels.values())
        kind = self._kinds.get(alike)
        if kind is None:
            kind = self._kinds[alike] = Kind(pod.namespace, labels, terminating)
            self._index(kind)
        number = self.topology.number(node)
        kind.nodes[number] = kind.nodes.get(number, 0) + amount
        if kind.queries is not None:
            for query in kind.queries:
                query.counts.add(number, amount)
                self._snapshot.note(query)
        if not kind.nodes[number]:
            del kind.nodes[number]
            if not kind.nodes:
                del self._kinds[alike]
                self._unindex(kind)

    def _index(self, kind: Kind) -> None:
        self._in_namespace.setdefault(kind.namespace, {})[kind] = None
        for pair in kind.labels.items():
            self._with_label.setdefault(pair, {})[kind] = None
        for place in (self._for_any, *[self._for_label[each] for each in kind.labels.items() & self._for_label.keys()]):
            for query in list(place):
                if self._means(query, kind):
                    kind.join(query)

    def _unindex(self, kind: Kind) -> None:
        _leave(self._in_namespace, kind.namespace, kind)
        for pair in kind.labels.items():
            _leave(self._with_label, pair, kind)

    def _candidates(self, term: Term) -> Iterator[Kind]:
        """Kinds that the term may mean: those of its namespaces, or those with a label that it names, if fewer."""
        places = [
            [self._with_label[pair] for pair in pairs((line,)) if pair in self._with_label]
            for line in term.selector or ()
            if line.operator == "In"
        ]
        names = term.namespaces if term.namespace_selector is None else self._in_namespace.keys()
        places.append([self._in_namespace[name] for name in names if name in self._in_namespace])
        for place in min(places, key=lambda several: sum(map(len, several))):
            yield from place

    def _places(self, query: Query) -> list[WeakSet[Query]]:
        """Where new kinds look for queries."""
        wanted = pairs(query.terms[0].selector)
        if not wanted:
            return [self._for_any]
        if len(self._for_label) > 2 * len(self._queries) + 64:
            self._for_label = {pair: place for pair, place in self._for_label.items() if len(place)}
        return [self._for_label.setdefault(pair, WeakSet()) for pair in wanted]

    def _means(self, query: Query, kind: Kind) -> bool:
        if query.living and kind.terminating:
            return False
        labels = self.labels_of(kind.namespace)
        return all(term.means(kind.namespace, labels, kind.labels) for term in query.terms)


def _leave(index: dict[Key, dict[Kind, None]], key: Key, kind: Kind) -> None:
    del index[key][kind]
    if not index[key]:
        del index[key]
