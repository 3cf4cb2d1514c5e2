"""Volcano's case N: in which order backfill gives places to tasks that ask for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from subak.batch.actions.backfill import order
from subak.batch.world import Status
from tests.batch.worlds import Stage, configuration

BACKFILL = configuration("backfill", tiers=[["priority", "gang"]])


def tasks_of_two_groups() -> Stage:
    stage = Stage()
    stage.node("n1")
    for group in (1, 2):
        stage.group(f"pg{group}", 1, priority=group, phase="Inqueue")
        for priority in (1, 2, 3, 4):
            kept: dict[str, Any] = {"node": "n1", "status": Status.PIPELINED} if priority % 2 == 0 else {}
            stage.pod(f"pg{group}-task-{priority}", f"pg{group}", priority=priority, **kept)
            stage.pod(f"pg{group}-busy-{priority}", f"pg{group}", priority=priority, cpu=1)
    return stage


@pytest.mark.parametrize("case", ["N"])
def test_the_order_is_by_job_and_then_by_task(case: str) -> None:
    stage = tasks_of_two_groups()
    session = stage.run(configuration(tiers=[["priority", "gang"]]))
    picked = [stage.name(task) for _, tasks in order(session) for task in tasks]
    assert picked == [f"pg{group}-task-{number}" for group in (2, 1) for number in (4, 3, 2, 1)]


def test_all_of_them_get_places_and_nobody_else() -> None:
    stage = tasks_of_two_groups()
    stage.run(BACKFILL)
    assert sorted(stage.bound) == sorted(f"pg{group}-task-{number}" for group in (1, 2) for number in (1, 2, 3, 4))


def test_a_gang_of_such_tasks_starts_whole_or_not_at_all() -> None:
    stage = Stage()
    stage.node("n1", pods=3)
    stage.group("large", 4, phase="Inqueue")
    stage.group("small", 2, phase="Inqueue")
    for number in range(4):
        stage.pod(f"large-{number}", "large")
    for number in range(3):
        stage.pod(f"small-{number}", "small")
    stage.run(BACKFILL)
    assert sorted(stage.bound) == ["small-0", "small-1", "small-2"]


def test_taints_hold_for_them_too() -> None:
    stage = Stage()
    stage.node("n1", taints=[{"key": "mine", "value": "", "effect": "NoSchedule"}])
    stage.pod("p1")
    stage.run(BACKFILL)
    assert stage.bound == {}
