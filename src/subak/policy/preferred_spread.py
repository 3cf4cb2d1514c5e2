"""Pods that would rather spread evenly over domains (`whenUnsatisfiable: ScheduleAnyway`).

    load   = for each constraint: pods in the node's domain * ln(number of domains + 2) + maxSkew - 1
    points = 100 * (highest load + lowest load - load) / highest load; 0 for nodes without the labels

Which pods and nodes count is as for constraints that must hold (`policy.spread`); where every node is a domain, all its
pods count.  Only domains of nodes that may take the pod count.  Weight and scale are kube-scheduler's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from subak.model import manifest
from subak.model.request import Request
from subak.policy import Preference
from subak.policy.preferred_nodes import MOST
from subak.policy.spread import SOFT, Constraint, constraints, eligible, stated, with_all_labels
from subak.snapshot.census import Census
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Pool

HOSTNAME = "kubernetes.io/hostname"

Loads = npt.NDArray[np.float64]


class EvenSpread(Preference):
    """Topology spread constraints that need not hold."""

    name = "even spread"
    weight = 2

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._census = snapshot.watched(Census)
        self._topology = self._census.topology

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        return constraints(pod, SOFT, self._census) or None

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        several = stated(request, self.name)
        labelled = with_all_labels(self._topology, several)
        possible: Bools = np.zeros(self._topology.nodes.room, np.bool_)
        for pool, there in among.items():
            possible[self._topology.positions(pool)[: len(there)]] = there
        possible &= labelled
        total = np.add.reduce([self._load(each, request, labelled, possible) for each in several])
        loads = np.floor(total + 0.5).astype(np.int64)
        points = self._scaled(loads, possible)
        return {pool: points[self._topology.positions(pool)] for pool in among}

    def _load(self, constraint: Constraint, request: Request, labelled: Bools, possible: Bools) -> Loads:
        domains = self._topology.domains(constraint.key)
        if constraint.key == HOSTNAME:
            pods, size = constraint.pods.by_node, int(possible.sum())
        else:
            counted = labelled & eligible(self._snapshot, self._topology, request.needs, constraint)
            pods = domains.sums(np.where(counted, constraint.pods.by_node, 0))[domains.of]
            size = int((domains.sums(possible) > 0).sum())
        return pods.astype(np.float64) * math.log(size + 2) + (constraint.max_skew - 1)

    @staticmethod
    def _scaled(loads: Column, possible: Bools) -> Column:
        if not possible.any():
            return np.zeros_like(loads)
        lowest, highest = int(loads[possible].min()), int(loads[possible].max())
        points = MOST * (highest + lowest - loads) // highest if highest else np.full_like(loads, MOST)
        return np.where(possible, points, 0)
