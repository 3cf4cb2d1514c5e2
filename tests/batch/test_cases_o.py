"""Volcano's cases of preemption (group O), and what its own tests say besides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subak.batch.configuration import Option
from subak.batch.world import Status, Task
from tests.batch.worlds import Stage, configuration

LOW, HIGH = 10, 100_000
PLUGINS = ("conformance", "gang", "priority", "proportion")
PREEMPT = configuration("preempt", tiers=[PLUGINS])

Case = Callable[[Stage], list[str]]
"""Sets the stage, runs a session, and says who should have left."""


def low(stage: Stage, name: str, cpu: float = 1, node: str = "n1", group: str = "low", **facts: object) -> Task:
    return running(stage, name, cpu, node, group, **facts)


def running(stage: Stage, name: str, cpu: float, node: str, group: str, **facts: object) -> Task:
    return stage.pod(name, group, cpu=cpu, memory=f"{cpu}G", node=node, status=Status.RUNNING, **facts)  # type: ignore[arg-type]


def wish(stage: Stage, name: str, cpu: float = 1, group: str = "high", **facts: object) -> Task:
    return stage.pod(name, group, cpu=cpu, memory=f"{cpu}G", **facts)  # type: ignore[arg-type]


def node(stage: Stage, cpu: float, name: str = "n1", pods: int = 10) -> None:
    stage.node(name, cpu=cpu, memory=f"{cpu}G", pods=pods)


def groups(stage: Stage, low_min: int = 1, high_min: int = 1, **queue: object) -> None:
    stage.queue("q1", **queue)
    stage.group("low", low_min, queue="q1", priority=LOW, phase="Inqueue")
    stage.group("high", high_min, queue="q1", priority=HIGH, phase="Inqueue")


def o1(stage: Stage) -> list[str]:
    """Idle resources are enough."""
    node(stage, 10)
    stage.group("job", 3, queue="q1", phase="Inqueue")
    running(stage, "a", 1, "n1", "job")
    running(stage, "b", 1, "n1", "job")
    wish(stage, "c", group="job")
    return []


def enough_members(stage: Stage) -> list[str]:
    """A job that has as many as it must have takes nobody's place."""
    node(stage, 3)
    for name, members in (("one", ["a", "b"]), ("two", ["c"])):
        stage.group(name, 1, queue="q1", phase="Inqueue")
        for member in members:
            running(stage, member, 1, "n1", name)
    wish(stage, "d", group="two")
    return []


def o3(stage: Stage) -> list[str]:
    """Only who may be preempted leaves, and one place is enough for the group."""
    node(stage, 2)
    groups(stage)
    low(stage, "a")
    low(stage, "b", preemptable=False)
    wish(stage, "high-0")
    wish(stage, "high-1")
    return ["a"]


def o4(stage: Stage) -> list[str]:
    """As many leave as a large task takes."""
    node(stage, 6)
    groups(stage)
    low(stage, "a")
    low(stage, "b")
    low(stage, "c", preemptable=False)
    wish(stage, "high-0", 5)
    return ["a", "b"]


def full_queue(stage: Stage, cap: int) -> None:
    node(stage, 12)
    groups(stage, low_min=0, capability={"cpu": cap, "memory": f"{cap}G"})
    low(stage, "a", 3)
    wish(stage, "high-0", 3)


def queue_is_full(stage: Stage) -> list[str]:
    """The node has room and the queue has none: its own tasks leave."""
    full_queue(stage, 4)
    return ["a"]


def o6(stage: Stage) -> list[str]:
    """Both fit into the queue."""
    full_queue(stage, 6)
    return []


def least_important_of_a_full_queue(stage: Stage) -> list[str]:
    """In a queue that is full the task with the lowest priority leaves."""
    node(stage, 12)
    groups(stage, capability={"cpu": 3, "memory": "3G"})
    low(stage, "a", preemptable=False)
    low(stage, "b", priority=1)
    low(stage, "c", priority=HIGH)
    wish(stage, "high-0")
    return ["b"]


def o8(stage: Stage) -> list[str]:
    """The node takes one pod only."""
    node(stage, 12, pods=1)
    groups(stage, low_min=0, capability={"cpu": 6, "memory": "6G"})
    low(stage, "idle", 0)
    wish(stage, "high-0", 3)
    return ["idle"]


def best_effort_takes_best_effort(stage: Stage) -> list[str]:
    """Who asks for nothing takes from those who ask for nothing either."""
    node(stage, 12, pods=1)
    groups(stage, low_min=0)
    low(stage, "idle", 0)
    wish(stage, "high-0", 0)
    return ["idle"]


def best_effort_takes_nothing_else(stage: Stage) -> list[str]:
    """Who asks for nothing takes nothing from those who ask for something."""
    node(stage, 12, pods=1)
    groups(stage, low_min=0)
    low(stage, "a", 1)
    wish(stage, "high-0", 0)
    return []


def never(stage: Stage) -> list[str]:
    """A pod with preemptionPolicy Never sends nobody away."""
    node(stage, 2)
    groups(stage)
    low(stage, "a")
    low(stage, "b")
    wish(stage, "high-0", spec={"preemptionPolicy": "Never"})
    return []


def o12(stage: Stage) -> list[str]:
    """On the first node one would have to leave who frees too little of the queue."""
    node(stage, 3, "n1")
    node(stage, 4, "n2")
    groups(stage, low_min=0, capability={"cpu": 6, "memory": "6G"})
    low(stage, "small", 1, "n1")
    low(stage, "large", 4, "n2")
    wish(stage, "high-0", 3)
    return ["large"]


def o13(stage: Stage) -> list[str]:
    """A queue in which nobody starves takes no part."""
    node(stage, 2)
    stage.group("satisfied", 1, queue="q1", phase="Inqueue")
    running(stage, "s", 1, "n1", "satisfied")
    stage.group("low", 0, queue="q2", priority=LOW, phase="Inqueue")
    stage.group("high", 1, queue="q2", priority=HIGH, phase="Inqueue")
    low(stage, "a")
    wish(stage, "high-0")
    return ["a"]


def o14(stage: Stage) -> list[str]:
    """The node has enough in all, but no card has: one tenant of the right card leaves."""
    stage.node("n1", cards=[16_000, 16_000])
    groups(stage, low_min=0)
    for card in range(2):
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9_000}
        annotations = {"nvidia.com/use-gpuuuid": f"GPU-n1-{card}"}
        low(stage, f"a{card}", 0, limits=limits, annotations=annotations, priority=card)
    wish(stage, "high-0", 0, limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10_000})
    return ["a0"]


def o15(stage: Stage) -> list[str]:
    """Of the tasks of a job the less important one leaves."""
    node(stage, 6)
    groups(stage)
    low(stage, "a", 3)
    low(stage, "b", 3, priority=1000)
    wish(stage, "high-0", 3)
    return ["a"]


def o17(stage: Stage) -> list[str]:
    """Conformance protects kube-system."""
    node(stage, 2)
    groups(stage, low_min=0)
    low(stage, "a", namespace="kube-system")
    low(stage, "b", namespace="test-namespace")
    wish(stage, "high-0")
    return ["test-namespace/b"]


CASES: dict[str, Case] = {
    "O1": o1,
    "O3": o3,
    "O4": o4,
    "O6": o6,
    "O8": o8,
    "O12": o12,
    "O13": o13,
    "O14": o14,
    "O15": o15,
    "O17": o17,
}

OTHERS: list[Case] = [
    enough_members,
    queue_is_full,
    least_important_of_a_full_queue,
    best_effort_takes_best_effort,
    best_effort_takes_nothing_else,
    never,
]


def check(case: Case, conf: object = PREEMPT) -> Stage:
    stage = Stage()
    expected = case(stage)
    stage.run(conf)  # type: ignore[arg-type]
    assert sorted(stage.evicted) == sorted(expected)
    assert bool(stage.kept) is bool(expected), "a place is kept for whom others leave"
    return stage


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_volcanos_cases(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.__name__)
def test_what_volcanos_own_tests_say_besides(case: Case) -> None:
    check(case)


def test_o15_the_preemptor_waits_on_the_node_of_its_victim() -> None:
    assert check(o15).kept == {"high-0": "n1"}


@pytest.mark.parametrize("plugin", ["priority"], ids=["O16"])
def test_a_plugin_that_is_switched_off_lets_nobody_go(plugin: str) -> None:
    stage = Stage()
    o15(stage)
    stage.run(configuration("preempt", tiers=[[Option(plugin, {"enablePreemptable": False})]]))
    assert stage.evicted == {}
