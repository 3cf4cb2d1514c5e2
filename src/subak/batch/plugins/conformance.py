"""Conformance: pods on which the cluster itself depends never have to leave for others."""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch import Plugin
from subak.batch.world import Task

CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM = "kube-system"


class Conformance(Plugin):
    """Names all victims but critical pods and those of the system's namespace."""

    name = "conformance"
    vetoes = ("preemptable", "reclaimable")

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """All but those."""
        return [task for task in candidates if not _critical(task)]

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        """All but those."""
        return [task for task in candidates if not _critical(task)]


def _critical(task: Task) -> bool:
    return task.pod.namespace == SYSTEM or task.pod.spec.priority_class_name in CRITICAL
