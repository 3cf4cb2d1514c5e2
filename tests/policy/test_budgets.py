"""Budgets: whom they protect, and who goes against them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from subak.model import manifest
from subak.model.budget import Budget
from subak.policy.budgets import Budgets, violating


def budget(
    name: str = "b", selector: Any = None, allowed: int = 0, namespace: str = "default", **status: Any
) -> Budget:
    content = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}} if selector is None else selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    return msgspec.convert(content, Budget)


def pod(name: str = "a", namespace: str = "default", **labels: str) -> manifest.Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": labels}}, manifest.Pod)


@pytest.mark.parametrize(
    ("selector", "labels", "protects"),
    [
        ({"matchLabels": {"app": "web"}}, {"app": "web", "x": "y"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, {"app": "db"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"x": "y"}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, False),  # as kube-scheduler has it
        ({}, {"app": "web"}, False),  # an empty selector protects nobody from preemption
    ],
)
def test_whom_a_budget_protects(selector: Any, labels: dict[str, str], protects: bool) -> None:
    assert budget(selector=selector).protects(pod(**labels)) is protects


def test_a_budget_protects_pods_of_its_namespace_that_are_not_going_already() -> None:
    assert not budget(namespace="other").protects(pod(app="web"))
    assert not budget(disruptedPods={"a": "2026-01-01T00:00:00Z"}).protects(pod("a", app="web"))
    assert budget(disruptedPods={"a": "2026-01-01T00:00:00Z"}).protects(pod("b", app="web"))


def test_each_victim_uses_up_one_of_every_budget_that_protects_it() -> None:
    one, two = budget("one", allowed=1), budget("two", allowed=2)
    assert violating([[one, two], [two], [two]]) == [False, False, True]
    assert violating([[one, two], [one, two], []]) == [False, True, False]


def test_budgets_come_change_and_go() -> None:
    budgets = Budgets()
    budgets.put(budget(allowed=1))
    version = budgets.version
    budgets.put(budget(allowed=2))
    assert budgets.version > version
    assert [each.status.disruptions_allowed for each in budgets.protecting(pod(app="web"))] == [2]
    assert budgets.protecting(pod(namespace="other", app="web")) == []
    budgets.remove("default/b")
    budgets.remove("default/never-seen")
    assert budgets.protecting(pod(app="web")) == []
