"""Which evictions a PodDisruptionBudget would not allow, counted as kube-scheduler counts them.

Each victim, the most important first, uses up one of every budget that protects it.  It is a violation if one of them
has nothing left.  We count the victims themselves.  kube-scheduler counts all pods that it could evict on the node, so
that it may see a violation where none would happen.
"""

from __future__ import annotations

from collections.abc import Iterable

from subak.model.budget import Budget
from subak.model.manifest import Pod


class Budgets:
    """All budgets of a cluster.  `version` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._of_namespace: dict[str, dict[str, Budget]] = {}

    def put(self, budget: Budget) -> None:
        """Take in a budget that is new or has changed."""
        self.version += 1
        self._of_namespace.setdefault(budget.key.partition("/")[0], {})[budget.key] = budget

    def remove(self, key: str) -> None:
        """A budget is no longer there."""
        self.version += 1
        self._of_namespace.get(key.partition("/")[0], {}).pop(key, None)

    def protecting(self, pod: Pod) -> list[Budget]:
        """The budgets that protect the pod, by name."""
        there = self._of_namespace.get(pod.namespace)
        return [there[key] for key in sorted(there) if there[key].protects(pod)] if there else []


def violating(victims: Iterable[Iterable[Budget]]) -> list[bool]:
    """For each victim, given by what protects it, the most important first, whether it goes against a budget."""
    used: dict[str, int] = {}
    answers = []
    for budgets in victims:
        violated = False
        for budget in budgets:
            used[budget.key] = used.get(budget.key, 0) + 1
            violated |= used[budget.key] > budget.status.disruptions_allowed
        answers.append(violated)
    return answers
