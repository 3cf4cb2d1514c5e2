"""How queues stand, as the next session would find it."""

from __future__ import annotations

from subak.batch.configuration import Option
from subak.batch.overview import MISSING, QueueView, jobs_of, look, overview
from subak.batch.world import Status
from tests.batch.worlds import SEED, Stage, configuration

MEMORY = "volcano.sh/gpu-memory"


def views(stage: Stage, configured: object = SEED) -> dict[str, QueueView]:
    return {view.name: view for view in overview(look(stage.world, stage.decider, configured))}  # type: ignore[arg-type]


def test_a_queue_shows_what_it_deserves_holds_and_asks_for() -> None:
    stage = Stage()
    stage.node("n1", cards=[16_000])
    stage.queue("a", weight=3)
    gang = stage.group("gang", 2, queue="a", phase="Inqueue")
    stage.pod("gang-0", gang, limits={MEMORY: 4000}, node="n1", status=Status.RUNNING)
    stage.pod("gang-1", gang, limits={MEMORY: 4000})
    found = views(stage)["a"]
    assert (found.weight, found.groups, found.half_bound) == (3, {"Inqueue": 1}, 1)
    assert (found.pods_running, found.pods_waiting) == (1, 1)
    assert found.held["nvidia/memory"] == 4000 << 20
    assert found.asked["nvidia/memory"] == 8000 << 20
    assert found.deserved is not None
    assert found.deserved["nvidia/memory"] == 8000 << 20
    assert found.share == 0.5
    assert not found.overused


def test_without_proportion_nobody_deserves_anything() -> None:
    stage = Stage()
    stage.queue("a")
    found = views(stage, configuration(tiers=[[Option("gang")]]))["a"]
    assert found.deserved is None
    assert found.share is None


def test_a_queue_that_is_not_there_is_shown_with_its_pods() -> None:
    stage = Stage()
    stage.pod("p", stage.group("g", queue="lost"), cpu=1)
    stage.world.remove_queue("lost")
    found = views(stage)["lost"]
    assert (found.state, found.pods_waiting) == (MISSING, 1)
    assert [job.name for job in jobs_of(look(stage.world, stage.decider, SEED), "lost")] == ["default/g"]


def test_jobs_that_wait_come_in_their_order_and_before_those_that_do_not() -> None:
    stage = Stage()
    stage.node("n1")
    stage.pod("done", stage.group("done"), cpu=1, node="n1", status=Status.RUNNING)
    stage.pod("late", stage.group("late"), cpu=1)
    stage.pod("first", stage.group("first", priority=5), cpu=1)
    session = look(stage.world, stage.decider, SEED)
    assert [job.name for job in jobs_of(session, "default")] == ["default/first", "default/late", "default/done"]
    assert jobs_of(session, "nobody") == []


def test_to_look_changes_nothing() -> None:
    stage = Stage()
    stage.node("n1", cpu=4)
    stage.group("g", min_resources={"cpu": 1})
    before = stage.snapshot.version
    views(stage)
    assert stage.phases() == {"g": "Pending"}
    assert stage.snapshot.version == before
