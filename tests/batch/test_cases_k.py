"""Group K of Volcano's cases: queues share a cluster in proportion.  Water-filling itself is in `test_shares`."""

from __future__ import annotations

from typing import Any

import pytest

from subak.batch import Plugin, Vote
from subak.batch.arguments import Arguments
from subak.batch.configuration import FLAGS, Configuration, Option
from subak.batch.plugins.proportion import Proportion
from subak.batch.registry import ACTIONS, PLUGINS
from subak.batch.session import Session
from subak.batch.world import Job, Status
from tests.batch.worlds import Stage, configuration

QUESTIONS = ("overused", "unallocatable", "enqueueable", "queue_rank", "reclaimable", "preemptive")


def proportion(*enabled: str) -> Configuration:
    """Enqueue and allocate, with those questions to proportion only."""
    flags = {FLAGS[each]: each in enabled for each in QUESTIONS}
    return configuration("enqueue", "allocate", tiers=[["gang"], [Option("proportion", flags), "predicates"]])


def two_nodes() -> Stage:
    """Two nodes; q1 holds all of its memory, q2 all of its cpu, q3 is closed."""
    stage = Stage()
    stage.node("n1", cpu=2, memory="2G")
    stage.node("n2", cpu=2, memory="2G")
    stage.queue("q1", capability={"cpu": 2, "memory": "2G"})
    stage.queue("q2", capability={"cpu": 3, "memory": "3G"})
    stage.queue("q3", capability={"cpu": 3, "memory": "3G"}, state="Closed")
    add(stage, "p1", "q1", 1, "2G", node="n1", phase="Running")
    add(stage, "p2", "q2", 2, "1G", node="n2", phase="Running")
    return stage


def add(stage: Stage, name: str, queue: str, cpu: int, memory: str | int, node: str = "", **facts: Any) -> Job:
    """A group of one pod, which needs what its pod asks for."""
    needs = {key: amount for key, amount in {"cpu": cpu, "memory": memory}.items() if amount}
    job = stage.group(f"pg-{name}", queue=queue, min_resources=needs, **facts)
    stage.pod(name, job, cpu=cpu, memory=memory, node=node, status=Status.RUNNING if node else Status.PENDING)
    return job


@pytest.mark.parametrize(
    ("pod", "enabled", "bound"),
    [
        pytest.param(("p3", "q1", 1, 0), ("overused", "unallocatable", "enqueueable"), {"p3": "n1"}, id="K1"),
        pytest.param(("p4", "q2", 0, "1G"), QUESTIONS, {"p4": "n2"}, id="K2"),
        pytest.param(("p5", "q1", 1, "1G"), ("enqueueable",), {}, id="K3"),
        pytest.param(("p5", "q1", 1, "1G"), ("unallocatable",), {}, id="K4"),
        pytest.param(("p6", "q3", 1, "1G"), ("enqueueable",), {}, id="K5"),
    ],
)
def test_a_queue_grows_up_to_its_limits(
    pod: tuple[str, str, int, str], enabled: tuple[str, ...], bound: dict[str, str]
) -> None:
    stage = two_nodes()
    add(stage, *pod)
    stage.run(proportion(*enabled))
    assert stage.bound == bound


def test_who_is_kept_back_is_told_by_how_much() -> None:
    stage = two_nodes()
    job = add(stage, "p5", "q1", 1, "1G")
    session = stage.run(proportion("enqueueable"))
    assert session.notes[job.key].message == (
        "queue resource quota insufficient: insufficient memory: "
        "queue q1 may have 1.9 GiB, 1.9 GiB were promised, 953.7 MiB asked"
    )
    session = stage.session(proportion(*QUESTIONS))
    assert session.unallocatable(stage.world.queues["q1"], job.tasks["default/p5"]) == (
        "queue resource quota insufficient: insufficient memory: "
        "queue q1 deserves 1.9 GiB, 1.9 GiB held, 953.7 MiB asked"
    )


def test_k6_the_queue_with_the_highest_priority_comes_first() -> None:
    stage = Stage()
    for name in ("n1", "n2"):
        stage.node(name, cpu=2, memory="4Gi")
    for name, priority in (("q1", 5), ("q2", 1), ("q3", 10)):
        stage.queue(name, priority=priority)
    add(stage, "p1", "q1", 2, "4Gi", node="n1", phase="Running")
    add(stage, "p2", "q2", 2, "4Gi")
    add(stage, "p3", "q3", 2, "4Gi")
    stage.run(configuration("allocate", tiers=[["gang", Option("proportion", {"enabledAllocatable": False})]]))
    assert stage.bound == {"p3": "n2"}


def test_k8_a_job_that_another_plugin_rejects_consumes_nothing() -> None:
    class Picky(Plugin):
        name = "picky"

        def enqueueable(self, job: Job) -> Vote:
            return Vote.REJECT if job.name.endswith("pg-a") else Vote.ABSTAIN

    stage = Stage()
    stage.node("n1", cpu=8)
    stage.queue("q", capability={"cpu": 1})
    add(stage, "a", "q", 1, 0)
    add(stage, "b", "q", 1, 0)
    tiers = ((Option("proportion"), Option("picky")),)
    known = {**PLUGINS, Picky.name: Picky}
    session = Session(stage.world, stage.decider, Configuration((), tiers), known, stage, stage)
    ACTIONS["enqueue"](session, Arguments())
    assert stage.phases() == {"pg-a": "Pending", "pg-b": "Inqueue"}


def test_two_jobs_of_one_session_are_not_promised_the_same() -> None:
    stage = Stage()
    stage.node("n1", cpu=8)
    stage.queue("q", capability={"cpu": 1})
    add(stage, "a", "q", 1, 0)
    add(stage, "b", "q", 1, 0)
    stage.run(configuration("enqueue", tiers=[["proportion"]]))
    assert stage.phases() == {"pg-a": "Inqueue", "pg-b": "Pending"}


def test_what_a_job_holds_beyond_its_minimum_keeps_nobody_out() -> None:
    stage = Stage()
    stage.node("n1", cpu=8)
    stage.queue("q", capability={"cpu": 4})
    elastic = add(stage, "a", "q", 2, 0, node="n1", phase="Running")
    stage.pod("a-1", elastic, cpu=2, node="n1", status=Status.RUNNING)
    add(stage, "b", "q", 2, 0)
    add(stage, "c", "q", 1, 0)
    stage.run(configuration("enqueue", tiers=[["proportion"]]))
    assert stage.phases() == {"pg-a": "Running", "pg-b": "Inqueue", "pg-c": "Pending"}


def test_a_job_that_runs_and_has_lost_tasks_holds_no_more_back_than_it_holds() -> None:
    stage = Stage()
    stage.node("n1", cpu=8)
    stage.queue("q", capability={"cpu": 4})
    ended = stage.group("pg-a", 2, queue="q", min_resources={"cpu": 4}, phase="Running")
    stage.pod("a-0", ended, cpu=2, node="n1", status=Status.RUNNING)
    add(stage, "b", "q", 2, 0)
    stage.run(configuration("enqueue", tiers=[["proportion"]]))
    assert stage.phases()["pg-b"] == "Inqueue"


def test_weights_count_for_shared_cards_of_all_dialects() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000, 16_000])
    stage.queue("small")
    stage.queue("large", weight=3)
    asking: list[dict[str, Any]] = [
        {"volcano.sh/gpu-memory": 2000},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000},
        {"koordinator.sh/gpu-memory": f"{2000}Mi"},
        {"volcano.sh/gpu-memory": 2000},
    ]
    for queue in ("small", "large"):
        for i in range(16):
            job = stage.group(f"{queue}-{i}", queue=queue)
            stage.pod(f"{queue}-{i}", job, limits=asking[i % 4])
    stage.run(configuration("allocate", tiers=[["gang"], ["drf", "predicates", "proportion"]]))
    assert sorted(name.partition("-")[0] for name in stage.bound) == ["large"] * 12 + ["small"] * 4


def test_a_queue_takes_back_only_what_another_has_beyond_its_share() -> None:
    stage = Stage()
    stage.node("n1", cpu=16, cards=[16_000])
    rich, poor = stage.group("rich", queue="a"), stage.group("poor", queue="b")
    limits = {"volcano.sh/gpu-memory": 4000}
    idle = stage.pod("rich-cpu", rich, cpu=1, node="n1", status=Status.RUNNING)
    victims = [stage.pod(f"rich-{i}", rich, limits=limits, node="n1", status=Status.RUNNING) for i in range(4)]
    takers = [stage.pod(f"poor-{i}", poor, limits=limits) for i in range(4)]
    session = stage.session(configuration(tiers=[["proportion"]]))
    assert session.reclaimable(takers[0], [idle, *victims]) == victims[:2]
    assert session.preemptive(stage.world.queues["b"], takers[0])


def test_a_queue_may_not_take_back_more_than_it_deserves() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000])
    rich, poor = stage.group("rich", queue="a"), stage.group("poor", queue="b")
    for i in range(4):
        stage.pod(f"rich-{i}", rich, limits={"volcano.sh/gpu-memory": 4000}, node="n1", status=Status.RUNNING)
    taker = stage.pod("poor-0", poor, limits={"volcano.sh/gpu-memory": 12_000})
    session = stage.session(configuration(tiers=[["proportion"]]))
    assert not session.preemptive(stage.world.queues["b"], taker)


def test_a_guarantee_is_kept_for_a_queue_that_asks_for_nothing_yet() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000])
    stage.queue("kept", guarantee={"volcano.sh/gpu-memory": 8000})
    for i in range(4):
        job = stage.group(f"g{i}", queue="other")
        stage.pod(f"p{i}", job, limits={"volcano.sh/gpu-memory": 4000})
    stage.run(configuration("allocate", tiers=[["gang"], ["proportion"]]))
    assert len(stage.bound) == 2


def test_what_queues_deserve_can_be_read() -> None:
    stage = Stage()
    stage.node("n1", cpu=4)
    stage.pod("p", stage.group("g", queue="q"), cpu=1)
    plugin = stage.session(configuration(tiers=[["proportion"]])).plugin("proportion")
    assert isinstance(plugin, Proportion)
    assert plugin.deserved == {"q": {"cpu": 1000, "pods": 1}}
