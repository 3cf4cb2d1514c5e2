"""Volcano's cases L: gangs, allocate, and the phases and conditions of groups after a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subak.batch import phases
from subak.batch.configuration import Configuration
from subak.batch.world import Phase, Status
from tests.batch.worlds import SEED, Stage, configuration

ALLOCATE = configuration("allocate", tiers=[["gang"], ["drf", "predicates", "proportion", "nodeorder"]])


def l1(stage: Stage) -> None:
    stage.group("pg1", 1)
    stage.pod("p1", "pg1", cpu=1, memory="1G", role="master", selector={"nodeRole": "master"})
    stage.pod("p2", "pg1", cpu=1, memory="1G", role="worker", selector={"nodeRole": "worker"})
    stage.node("n1", cpu=2, memory="4Gi", labels={"nodeRole": "worker"})


def roles(stage: Stage, master: int, worker: int) -> None:
    stage.group("pg1", 2, min_roles={"master": master, "worker": worker})
    for number, role in enumerate(("master", "master", "worker", "worker")):
        stage.pod(f"p{number}", "pg1", cpu=1, memory="1G", role=role, selector={"nodeRole": role})


def l2(stage: Stage) -> None:
    roles(stage, 1, 1)
    stage.node("n1", cpu=1, memory="2Gi", labels={"nodeRole": "master"})
    stage.node("n2", cpu=1, memory="2Gi", labels={"nodeRole": "worker"})


def l3(stage: Stage) -> None:
    roles(stage, 2, 0)
    stage.node("n1", cpu=1, memory="2Gi", labels={"nodeRole": "master"})
    stage.node("n2", cpu=2, memory="2Gi", labels={"nodeRole": "worker"})


def l4(stage: Stage) -> None:
    stage.group("pg1", 0)
    stage.pod("p1", "pg1", cpu=1, memory="1G")
    stage.pod("p2", "pg1", cpu=1, memory="1G")
    stage.node("n1", cpu=2, memory="4Gi")


def l5(stage: Stage) -> None:
    stage.queue("c1")
    stage.queue("c2")
    for number in (1, 2):
        stage.group(f"pg{number}", 1, queue=f"c{number}")
        for member in (2, 1):
            stage.pod(f"pg{number}-p-{member}", f"pg{number}", cpu=1, memory="1G")
    stage.node("n1", cpu=2, memory="4G")


def l6(stage: Stage) -> None:
    stage.queue("c1")
    stage.queue("c2")
    stage.group("pg1", 1, queue="c1")
    stage.group("pg2", 1, queue="c2")
    stage.pod("p1", "pg1", cpu=3, memory="1G")
    stage.pod("p2", "pg2", cpu=1, memory="1G")
    stage.node("n1", cpu=2, memory="4G")


def l8(stage: Stage) -> None:
    stage.group("pg1", 2)
    for number in range(3):
        stage.pod(f"p{number}", "pg1", limits={"volcano.sh/gpu-memory": 6_000})
    stage.node("n1", cards=[8_000, 8_000])


def l10(stage: Stage) -> None:
    stage.node("n1", cpu=2)
    stage.group("pg1", 2, phase="Running")
    stage.group("pg2", 2)
    for number in range(2):
        stage.pod(f"first-{number}", "pg1", cpu=1, node="n1", status=Status.RUNNING)
        stage.pod(f"second-{number}", "pg2", cpu=1)


def l11(stage: Stage) -> None:
    stage.node("n1", cpu=2)
    stage.group("pg1", 4)
    for number in range(2):
        stage.pod(f"idle-{number}", "pg1")
        stage.pod(f"busy-{number}", "pg1", cpu=1)


@pytest.mark.parametrize(
    ("build", "bound"),
    [
        pytest.param(l1, {"p2": "n1"}, id="L1"),
        pytest.param(l2, {"p0": "n1", "p2": "n2"}, id="L2"),
        pytest.param(l3, {}, id="L3"),
        pytest.param(l4, {"p1": "n1", "p2": "n1"}, id="L4"),
        pytest.param(l5, {"pg1-p-1": "n1", "pg2-p-1": "n1"}, id="L5"),
        pytest.param(l6, {"p2": "n1"}, id="L6"),
        pytest.param(l8, {"p0": "n1", "p1": "n1"}, id="L8"),
        pytest.param(l10, {}, id="L10"),
        pytest.param(l11, dict.fromkeys(("idle-0", "idle-1", "busy-0", "busy-1"), "n1"), id="L11"),
    ],
)
@pytest.mark.parametrize("actions", [ALLOCATE, SEED], ids=["allocate", "seed"])
def test_who_gets_a_place(actions: Configuration, build: Callable[[Stage], None], bound: dict[str, str]) -> None:
    stage = Stage()
    build(stage)
    stage.run(actions)
    assert stage.bound == bound
    assert not stage.evicted
    assert not stage.kept


def test_l8_two_cards_for_a_gang_of_at_least_two() -> None:
    stage = Stage()
    l8(stage)
    session = stage.run(SEED)
    assert stage.cards() == {"n1": {0: 6_000, 1: 6_000}}
    stage.started()
    job = stage.job("pg1")
    assert phases.phase(job) is Phase.RUNNING
    assert phases.condition(session, job) == phases.Condition("Scheduled", "tasks in gang are ready to be scheduled")


def test_l12_a_gang_without_room_is_unschedulable_and_nobody_has_to_leave() -> None:
    stage = Stage()
    l10(stage)
    session = stage.run(SEED)
    job = stage.job("pg2")
    found = phases.condition(session, job)
    assert found == phases.Condition(
        "Unschedulable",
        "NotEnoughResources",
        "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable. "
        "Origin reason is second-0: queue resource quota insufficient: insufficient cpu: queue default deserves 2, "
        "2 held, 2 asked",
    )
    assert phases.phase(job, unschedulable=True) is Phase.INQUEUE
    assert not stage.evicted


def test_a_gang_that_fits_in_part_says_how_many_of_it_do_and_what_the_first_other_lacks() -> None:
    stage = Stage()
    stage.node("n1", cards=[8_000, 8_000])
    stage.group("pg1", 4)
    for number in range(4):
        stage.pod(f"p{number}", "pg1", limits={"volcano.sh/gpu-memory": 6_000})
    for _ in range(2):  # the second session remembers what the first found out
        session = stage.run(configuration("enqueue", "allocate", tiers=[["gang"]]))
        found = phases.condition(session, stage.job("pg1"))
        assert found is not None
        assert found.message == (
            "2/4 tasks in gang unschedulable: pod group is not ready, 4 Pending, 4 minAvailable; "
            "Pending: 2 Schedulable, 2 Unschedulable. Origin reason is p2: 0 of 1 nodes fit: "
            "1 node: largest free slice 2,000 MiB, 6,000 MiB asked (CardInsufficientMemory)"
        )
    assert stage.bound == {}
    assert stage.cards() == {"n1": {0: 0, 1: 0}}


@pytest.mark.parametrize(
    ("least", "before", "tasks", "lacking", "after"),
    [
        pytest.param(1, "Running", ["Releasing@n1"], False, "Running", id="L14"),
        pytest.param(2, "Running", ["Running@n1", "Releasing@n2"], False, "Running", id="L15"),
        pytest.param(2, "Running", ["Releasing@n1", "Releasing@n2"], False, "Running", id="L16"),
        pytest.param(2, "Pending", ["Releasing@", "Pending@"], False, "Pending", id="L17"),
        pytest.param(2, "Running", ["Succeeded@n1", "Succeeded@n2"], False, "Completed", id="L18"),
        pytest.param(2, "Running", ["Releasing@n1"], False, "Pending", id="L19"),
        pytest.param(2, "Running", ["Running@n1", "Pending@"], True, "Unknown", id="L20"),
        pytest.param(2, "Inqueue", ["Binding@n1", "Binding@n1"], False, "Inqueue", id="bindings-unseen"),
        pytest.param(0, "Inqueue", ["Pending@"], False, "Inqueue", id="without-a-minimum"),
    ],
)
def test_the_phase_after_a_session(least: int, before: str, tasks: list[str], lacking: bool, after: str) -> None:
    stage = group_of(least, tasks, before)
    assert phases.phase(stage.job("pg1"), lacking) == after


@pytest.mark.parametrize(
    ("least", "tasks", "suppressed"),
    [
        pytest.param(2, ["Running@n1", "Releasing@n2"], True, id="L21"),
        pytest.param(2, ["Running@n1", "Releasing@n2", "Pending@"], False, id="L22"),
        pytest.param(2, ["Running@n1", "Releasing@n2", "Pipelined@n3"], False, id="L23"),
        pytest.param(1, ["Releasing@"], False, id="L24"),
    ],
)
def test_no_lack_is_reported_while_tasks_only_leave(least: int, tasks: list[str], suppressed: bool) -> None:
    stage = group_of(least, tasks, "Running")
    session = stage.run(configuration(tiers=[["gang"]]))
    found = phases.condition(session, stage.job("pg1"))
    assert (found is None) == suppressed
    assert found is None or found.type == "Unschedulable"


def group_of(least: int, tasks: list[str], phase: str) -> Stage:
    """A group with tasks that have a status and a node."""
    stage = Stage()
    for name in ("n1", "n2", "n3"):
        stage.node(name)
    stage.group("pg1", least, phase=phase)
    for number, text in enumerate(tasks):
        status, _, node = text.partition("@")
        stage.pod(f"p{number}", "pg1", cpu=1, node=node, status=Status(status))
    return stage
