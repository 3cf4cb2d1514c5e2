"""Volcano's cases of reclaiming (group P), and what its own tests say besides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subak.batch.world import Status, Task
from tests.batch.worlds import Stage, configuration

LOW, MIDDLE, HIGH = 10, 1_000, 100_000
RECLAIM = configuration("reclaim", tiers=[["conformance", "gang", "priority", "proportion"]])

Case = Callable[[Stage], list[str]]
"""Sets the stage and says who should leave."""


def running(stage: Stage, name: str, group: str, cpu: float = 1, **facts: object) -> Task:
    return stage.pod(name, group, cpu=cpu, memory="1G", node="n1", status=Status.RUNNING, **facts)  # type: ignore[arg-type]


def wish(stage: Stage, name: str, group: str, cpu: float = 1, **facts: object) -> Task:
    return stage.pod(name, group, cpu=cpu, memory="1G", **facts)  # type: ignore[arg-type]


def group(stage: Stage, name: str, queue: str, priority: int = 0, min_member: int = 0) -> None:
    stage.group(name, min_member, queue=queue, priority=priority, phase="Inqueue")


def one_takes_all(stage: Stage) -> list[str]:
    """One queue has everything."""
    stage.node("n1", cpu=3, memory="3Gi", pods=10)
    group(stage, "pg1", "q1", LOW)
    group(stage, "pg2", "q2", HIGH, 1)
    for i in range(3):
        running(stage, f"p{i}", "pg1", priority=-i)
    wish(stage, "wish", "pg2")
    return ["p2"]


def p2(stage: Stage) -> list[str]:
    """Of two queues that are above their shares the less important job gives, and of it who may be preempted."""
    stage.node("n1", cpu=4, memory="4G", pods=10)
    group(stage, "pg1", "q1", MIDDLE)
    group(stage, "pg2", "q2", LOW)
    group(stage, "pg3", "q3", HIGH, 1)
    for i in range(2):
        running(stage, f"middle-{i}", "pg1")
        running(stage, f"low-{i}", "pg2", preemptable=i == 1)
    wish(stage, "wish", "pg3")
    return ["low-1"]


def p4(stage: Stage) -> list[str]:
    """A pod with preemptionPolicy Never sends nobody away."""
    stage.node("n1", cpu=3, memory="3G", pods=10)
    group(stage, "pg1", "q1", LOW)
    group(stage, "pg2", "q2", HIGH, 1)
    for i in range(3):
        running(stage, f"p{i}", "pg1")
    wish(stage, "wish", "pg2", spec={"preemptionPolicy": "Never"})
    return []


def p5(stage: Stage) -> list[str]:
    """A closed queue takes nothing back."""
    stage.queue("q2", state="Closed")
    one_takes_all(stage)
    return []


def p6(stage: Stage) -> list[str]:
    """Idle processors count: only memory is short, and the less important queue gives it."""
    stage.queue("q1", priority=1)
    stage.queue("q2", priority=5)
    stage.queue("q3", priority=10, weight=4)
    stage.node("n1", cpu=10, memory="2G", pods=10)
    for i in (1, 2):
        group(stage, f"pg{i}", f"q{i}")
        running(stage, f"p{i}", f"pg{i}")
    group(stage, "pg3", "q3", 0, 1)
    wish(stage, "wish", "pg3", cpu=2)
    return ["p1"]


def p8(stage: Stage) -> list[str]:
    """There is room."""
    stage.node("n1", cpu=10, memory="10G", pods=10)
    group(stage, "pg1", "q1")
    group(stage, "pg2", "q2", 0, 1)
    for i in range(2):
        running(stage, f"p{i}", "pg1")
    wish(stage, "wish", "pg2", cpu=3)
    return []


def kept_queue(stage: Stage) -> list[str]:
    """A queue that is not reclaimable gives nothing."""
    stage.queue("q1", reclaimable=False)
    one_takes_all(stage)
    return []


def preemptable_only(stage: Stage) -> list[str]:
    """Who may not be preempted stays, though its queue is above its share."""
    stage.node("n1", cpu=3, memory="3G", pods=10)
    group(stage, "pg1", "q1")
    group(stage, "pg2", "q2", 0, 1)
    for i in range(3):
        running(stage, f"p{i}", "pg1", preemptable=False)
    wish(stage, "wish", "pg2")
    return []


CASES: dict[str, Case] = {"P2": p2, "P4": p4, "P5": p5, "P6": p6, "P8": p8}
OTHERS: list[Case] = [one_takes_all, kept_queue, preemptable_only]


def check(case: Case) -> None:
    stage = Stage()
    expected = case(stage)
    stage.run(RECLAIM)
    assert sorted(stage.evicted) == sorted(expected)
    assert bool(stage.kept) is bool(expected), "a place is kept for whom others leave"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_volcanos_cases(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.__name__)
def test_what_volcanos_own_tests_say_besides(case: Case) -> None:
    check(case)
