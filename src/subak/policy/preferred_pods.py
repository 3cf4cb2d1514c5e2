"""Pods that would rather be near to others, or away from them; the others' wishes count too.

    sum    = for each domain of the node: weights of the pod's preferred terms, for each pod there that they mean
             + weights of the terms of pods there that mean this pod; what they demand counts 1
    points = 100 * (sum - lowest) / (highest - lowest)

Terms of an anti-affinity count less than nothing.  Weights and scales are kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from subak.model import manifest
from subak.model.request import Request
from subak.policy import Preference
from subak.policy.preferred_nodes import MOST
from subak.policy.stated import demanded, preferred
from subak.snapshot.carriers import Carried, Carriers
from subak.snapshot.census import Census, Query
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Pool


@dataclass(frozen=True, slots=True)
class Wishes:
    """The pod's own terms, with their labels and weights, and terms of running pods that mean it."""

    own: tuple[tuple[Query, str, int], ...]
    others: frozenset[Carried]


class PreferredPods(Preference):
    """The soft part of pod affinity and anti-affinity, in both directions."""

    name = "preferred pods"
    weight = 2

    def __init__(self, snapshot: Snapshot) -> None:
        self._census = snapshot.watched(Census)
        self._topology = self._census.topology
        self._carriers = Carriers(snapshot)

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        others = self._carriers.meaning(pod, self._census.labels_of(pod.namespace))
        own = preferred(pod)
        if not own and not others:
            return None
        return Wishes(tuple([(self._census.query(term), key, weight) for term, key, weight in own]), others)

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        total = self._sums(request)
        sums = {pool: total[self._topology.positions(pool)] for pool in among}
        ends = [(each.min().item(), each.max().item()) for pool in among if len(each := sums[pool][among[pool]])]
        lowest, highest = min([low for low, _ in ends], default=0), max([high for _, high in ends], default=0)
        if lowest == highest:
            return {pool: np.zeros_like(each) for pool, each in sums.items()}
        return {pool: MOST * (each - lowest) // (highest - lowest) for pool, each in sums.items()}

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self._carry(pod, node, 1)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self._carry(pod, node, -1)

    def _carry(self, pod: manifest.Pod, node: str, amount: int) -> None:
        if pod.spec.affinity is not None:
            for stated in (*preferred(pod), *demanded(pod)):
                self._carriers.count(stated, node, amount)

    def _sums(self, request: Request) -> Column:
        """The sum for each node, by its number."""
        wishes = request.read(self.name)
        assert isinstance(wishes, Wishes), "it concerns only pods of which something was read"
        total = np.zeros(self._topology.nodes.room, np.int64)
        for query, key, weight in wishes.own:
            self._add(total, key, weight, query.by_node)
        for each in wishes.others:
            self._add(total, each.key, each.weight, each.by_node)
        return total

    def _add(self, total: Column, key: str, weight: int, by_node: Column) -> None:
        domains = self._topology.domains(key)
        total += weight * domains.sums(by_node)[domains.of]
