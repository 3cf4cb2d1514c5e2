"""PodDisruptionBudgets, lean: how many pods of a kind may go at the moment."""

from __future__ import annotations

from typing import Any

from subak.model.manifest import LabelSelector, Lean, Namespaced, Pod
from subak.model.selector import chosen, selector
from tinykube.resource import Resource

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", kind="PodDisruptionBudget")


class BudgetSpec(Lean, frozen=True, gc=False, kw_only=True):
    """Whom it protects."""

    selector: LabelSelector | None = None


class BudgetStatus(Lean, frozen=True, gc=False, kw_only=True):
    """How many may go now; `disrupted_pods` are going already and count no more."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class Budget(Namespaced, frozen=True, gc=False, kw_only=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def protects(self, pod: Pod) -> bool:
        """Whether the pod counts against the budget if it goes."""
        lines = selector(self.spec.selector)
        return (
            bool(lines)  # an empty selector chooses nothing here
            and self.namespace == pod.namespace
            and bool(pod.labels)
            and chosen(lines, pod.labels)
            and pod.name not in (self.status.disrupted_pods or {})
        )
