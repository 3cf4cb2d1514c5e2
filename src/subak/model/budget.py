"""PodDisruptionBudgets, lean: how many pods of a kind may go at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subak.model.manifest import Expression, Lean, Object, Pod
from tinykube.resource import Resource

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", kind="PodDisruptionBudget")


class LabelSelector(Lean, frozen=True, gc=False, kw_only=True):
    """All of its labels and lines must hold.  An empty one selects nothing here."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it means something with these labels."""
        wanted, lines = self.match_labels or {}, self.match_expressions or ()
        if not wanted and not lines:
            return False
        return all(labels.get(key) == value for key, value in wanted.items()) and all(
            line.holds(labels) for line in lines
        )


class BudgetSpec(Lean, frozen=True, gc=False, kw_only=True):
    """Whom it protects."""

    selector: LabelSelector | None = None


class BudgetStatus(Lean, frozen=True, gc=False, kw_only=True):
    """How many may go now; `disrupted_pods` are going already and count no more."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class Budget(Object, frozen=True, gc=False, kw_only=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    def protects(self, pod: Pod) -> bool:
        """Whether the pod counts against the budget if it goes."""
        selector = self.spec.selector
        return (
            selector is not None
            and (self.metadata.namespace or "default") == pod.namespace
            and bool(pod.labels)
            and selector.selects(pod.labels)
            and pod.name not in (self.status.disrupted_pods or {})
        )
