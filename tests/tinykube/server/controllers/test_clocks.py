"""Somebody sets the clock, by days or years, at any moment: nothing waits for that, and nothing comes too early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tests.tinykube.server.controllers.workshop import Workshop
from tests.tinykube.server.controllers.world import World
from tinykube.server.controllers.expiry import EVENT_SECONDS, PAUSE_SECONDS, Expiry
from tinykube.server.controllers.strays import QUARANTINE_SECONDS, Strays
from tinykube.server.kinds import DEPLOYMENT, EVENT, JOB, POD

DAY, YEAR = 86_400.0, 31_536_000.0
jumps = st.lists(st.sampled_from([-20 * YEAR, -YEAR, -DAY, -3600.0, -1.0, 0.0, 60.0, DAY, YEAR, 20 * YEAR]), max_size=6)


@examples(20, 500)
@given(jumps)
def test_events_live_for_an_hour_whatever_the_clock_says(ahead: list[float]) -> None:
    world = World()
    expiry = world.runs(Expiry(world.registry))
    world.create(EVENT, "a", involvedObject={"kind": "Pod", "namespace": "default", "name": "p"})
    for each in ahead:
        world.ahead += each
        expiry.pass_time((EVENT_SECONDS - 1) / len(ahead))
        assert world.names(EVENT) == ["a"]
    expiry.pass_time(EVENT_SECONDS + PAUSE_SECONDS)
    assert world.names(EVENT) == []


@examples(20, 500)
@given(jumps)
def test_pods_of_a_missing_node_have_their_40_seconds(ahead: list[float]) -> None:
    world = World()
    strays = world.runs(Strays(world.registry))
    world.pod("p", node="gone", phase="Running")
    for each in ahead:
        world.ahead += each
        strays.pass_time((QUARANTINE_SECONDS - 1) / len(ahead))
        assert world.names(POD) == ["p"]
    strays.pass_time(QUARANTINE_SECONDS)
    assert world.names(POD) == []


@examples(20, 300)
@given(jumps)
def test_owners_are_looked_at_in_time(ahead: list[float]) -> None:
    """Pods that fail again and again are replaced with growing pauses, but never later."""
    world = Workshop()
    world.make(JOB, pod={"restartPolicy": "Never"}, backoffLimit=100)
    world.make(DEPLOYMENT, "web", replicas=1)
    world.settle()
    for each in ahead:
        for pod in world.pods("Pending"):
            world.set_phase(pod, "Failed")
        world.ahead += each
        world.pass_time(700)
        assert len(world.pods("Pending")) == 2


def test_a_job_whose_time_is_up_ends_though_the_clock_was_back_for_a_while() -> None:
    world = Workshop()
    world.make(JOB, pod={"restartPolicy": "Never"}, activeDeadlineSeconds=600)
    world.settle()
    world.ahead = -YEAR
    world.pass_time(300)
    world.ahead = 0.0
    world.pass_time(400)
    world.reap()
    assert world.conditions(JOB)["Failed"] == ("True", "DeadlineExceeded")


def test_pods_become_available_though_the_clock_was_set_back() -> None:
    world = Workshop()
    world.make(DEPLOYMENT, replicas=2, minReadySeconds=30)
    world.run_all()
    world.pass_time(5)
    assert world.object(DEPLOYMENT)["status"].get("availableReplicas", 0) == 0
    world.ahead = -YEAR
    world.pass_time(60)
    assert world.object(DEPLOYMENT)["status"]["availableReplicas"] == 2
