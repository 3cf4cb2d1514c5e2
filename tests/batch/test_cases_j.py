"""Group J of Volcano's cases: dominant resource fairness."""

from __future__ import annotations

import pytest

from subak.batch.plugins.drf import Drf
from subak.batch.session import Session
from subak.batch.world import Job, Status, Task
from tests.batch.worlds import Stage, configuration

DRF = configuration(tiers=[["drf"]])


def stage() -> Stage:
    """16 cpus, 64 GiB, four cards of 16 GiB, room for 440 pods."""
    stage = Stage()
    for i in range(4):
        stage.node(f"n{i}", cpu=4, memory="16Gi", pods=110, cards=[16_384])
    return stage


def running(stage: Stage, name: str, *, node: str, **asked: object) -> Task:
    stage.group(name)
    return stage.pod(f"{name}-0", name, node=node, status=Status.RUNNING, **asked)  # type: ignore[arg-type]


def shares(session: Session, *tasks: Task) -> list[float]:
    drf = session.plugin("drf")
    assert isinstance(drf, Drf)
    return [drf.share(task.job) for task in tasks]


def test_j1_the_dominant_resource_of_a_gpu_job_is_the_memory_of_its_cards() -> None:
    world = stage()
    a, b, c = world.group("a"), world.group("b"), world.group("c")
    for i in range(4):
        world.pod(f"a-{i}", a, node=f"n{i}", status=Status.RUNNING, cpu=2, memory="2Gi")
    for i in range(3):
        limits = {"volcano.sh/gpu-memory": 16_384}
        world.pod(f"b-{i}", b, node=f"n{i}", status=Status.RUNNING, limits=limits, cpu=1 if i == 0 else 0)
    world.pod("c-0", c, node="n3", status=Status.RUNNING, cpu=1, limits={"volcano.sh/gpu-memory": 8192})
    session = world.session(DRF)
    drf = session.plugin("drf")
    assert isinstance(drf, Drf)
    assert [drf.share(job) for job in (a, b, c)] == [0.5, 0.75, 0.125]
    assert sorted((a, b, c), key=session.job_rank) == [c, a, b]


def test_j2_of_equal_shares_the_older_job_comes_first_and_then_the_uid() -> None:
    world = stage()
    young, old = world.group("young", created=9), world.group("old", created=1)
    twins = [world.group(name, created=5) for name in ("b", "a")]
    session = world.session(DRF)
    order: list[Job] = sorted((young, *twins, old), key=session.job_rank)
    assert [job.name for job in order] == ["default/old", "default/a", "default/b", "default/young"]


@pytest.mark.parametrize(("mine", "theirs", "may"), [(31, 30, False), (30, 31, True), (30, 30, True)])
def test_j4_a_job_takes_from_those_who_then_still_have_no_less(mine: int, theirs: int, may: bool) -> None:
    world = Stage()
    world.node("n", cpu=100)
    rich = world.group("rich")
    world.pod("rich-0", rich, cpu=theirs, node="n", status=Status.RUNNING)
    victim = world.pod("rich-1", rich, cpu=1, node="n", status=Status.RUNNING)
    preemptor = world.pod("poor-0", world.group("poor"), cpu=mine)
    assert world.session(DRF).preemptable(preemptor, [victim]) == ([victim] if may else [])


def test_victims_of_one_job_add_up() -> None:
    world = Stage()
    world.node("n", cpu=100)
    rich = world.group("rich")
    victims = [world.pod(f"rich-{i}", rich, cpu=10, node="n", status=Status.RUNNING) for i in range(4)]
    preemptor = world.pod("poor-0", world.group("poor"), cpu=20)
    assert world.session(DRF).preemptable(preemptor, victims) == victims[:2]


def test_cards_of_all_dialects_are_one_account() -> None:
    world = stage()
    a = running(world, "a", node="n0", limits={"volcano.sh/gpu-memory": 8192})
    b = running(world, "b", node="n1", limits={"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192})
    c = running(world, "c", node="n2", limits={"koordinator.sh/gpu-memory": "8Gi"})
    assert shares(world.session(DRF), a, b, c) == [0.125] * 3
