"""Pods behave as under a real kubelet: random pods, random results, and invariants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.container import LONGEST_PAUSE, Progress
from subak.local.kubelet.life import SHORTEST_GRACE, Life
from subak.local.kubelet.status import phase_of
from subak.model.manifest import Role
from tests.support.kubelet.pods import container, pod

POLICIES = ("Always", "OnFailure", "Never")


@st.composite
def lives(draw: st.DrawFn) -> Life:
    def some(prefix: str, least: int, sidecars: bool) -> list[dict[str, Any]]:
        made = []
        for index in range(draw(st.integers(least, 3))):
            fields: dict[str, Any] = {}
            if sidecars and draw(st.booleans()):
                fields["restartPolicy"] = "Always"
            if draw(st.booleans()) and (fields or not sidecars):
                fields["startupProbe"] = {"tcpSocket": {"port": 1}}
            made.append(container(f"{prefix}{index}", **fields))
        return made

    spec: dict[str, Any] = {
        "restartPolicy": draw(st.sampled_from(POLICIES)),
        "terminationGracePeriodSeconds": draw(st.integers(0, 30)),
    }
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = draw(st.integers(1, 400))
    return Life(pod(*some("app", 1, False), init=some("init", 0, True), **spec), 0.0)


class World:
    """Carries out what a life decides, with random results, and checks every step."""

    def __init__(self, life: Life, data: st.DataObject) -> None:
        self.life = life
        self.data = data
        self.now = 0.0
        self.starts: dict[int, int] = {}
        self.kill_at: dict[int, float] = {}

    def step(self) -> bool:
        """Let the life decide until nothing is left to do; False when it is over."""
        for _ in range(50):
            decision = self.life.decide(self.now)
            for stop in decision.stop:
                self.check_stop(stop.index)
                self.kill_at[stop.index] = self.now + stop.grace
            if decision.prepare:
                if self.data.draw(st.booleans(), "volumes are there"):
                    self.life.prepared = True
                else:
                    self.life.prepared_in_vain(self.now)
            for index in decision.start:
                self.start(index)
            if not (decision.start or decision.stop or decision.prepare):
                break
        else:
            pytest.fail("it never comes to rest")
        if decision.over:
            return False
        self.check_progress(decision.wake)
        self.pass_time(decision.wake)
        return True

    def start(self, index: int) -> None:
        each, life = self.life.containers[index], self.life
        assert life.ending is None, "nothing starts once the pod has to end"
        assert not each.running
        assert self.now >= each.not_before
        assert life.prepared
        if each.role is not Role.APP:
            before = life.containers[:index]
        else:
            before = [other for other in life.containers if other.role is not Role.APP]
        for other in before:
            assert other.succeeded if other.role is Role.INIT else other.state is not Progress.NEW
        if each.restart_policy == "Never" and each.role is not Role.SIDECAR:
            assert self.starts.get(index, 0) == 0, "what is never restarted is started once"
        if each.state is Progress.ENDED and each.end and each.end.finished_at is not None and each.pause:
            assert self.now - each.end.finished_at >= min(each.pause, LONGEST_PAUSE)
        if self.data.draw(st.integers(0, 9), "start") == 0:
            each.fails_to_start("CreateContainerConfigError", "no such key", self.now)
        else:
            self.starts[index] = self.starts.get(index, 0) + 1
            each.starts("id", self.now)
            self.kill_at.pop(index, None)

    def check_stop(self, index: int) -> None:
        each, life = self.life.containers[index], self.life
        assert each.running
        if life.ending is not None and each.role is Role.SIDECAR and self.now < life.ending.kill_by:
            later = life.containers[index + 1 :]
            assert not any(other.running for other in later), "sidecars outlive those who need them"

    def check_progress(self, wake: float | None) -> None:
        alive = any(each.running for each in self.life.containers)
        assert alive or wake is not None, "somebody must bring the pod on"
        assert wake is None or wake > self.now

    def pass_time(self, wake: float | None) -> None:
        running = [index for index, each in enumerate(self.life.containers) if each.running]
        slow = [index for index in running if not self.life.containers[index].started]
        what = self.data.draw(st.sampled_from(("exit", "wait", "started", "sick", "delete")), "what happens")
        if what == "exit" and running:
            self.now += self.data.draw(st.sampled_from((0.0, 1.0, 700.0)), "runs for")
            self.exit(self.data.draw(st.sampled_from(running), "who"))
        elif what == "started" and slow:
            self.life.containers[self.data.draw(st.sampled_from(slow))].started = True
        elif what == "sick" and running:
            self.life.condemn(self.data.draw(st.sampled_from(running)), "failed liveness probe", None)
        elif what == "delete":
            self.life.end(self.now, self.data.draw(st.integers(0, 30)))
        else:
            self.now = max(self.now + 0.5, min([wake or self.now + 60.0, *self.kill_at.values()]))
        for index in [index for index, when in self.kill_at.items() if when <= self.now]:
            if self.life.containers[index].running:
                self.exit(index, 137)
            self.kill_at.pop(index, None)

    def exit(self, index: int, code: int | None = None) -> None:
        if code is None:
            code = self.data.draw(st.sampled_from((0, 0, 1)), "exit code")
        self.life.containers[index].ends(code, self.now, "web_default(1)")


@given(lives(), st.data())
def test_a_pod_lives_by_the_rules_whatever_happens(life: Life, data: st.DataObject) -> None:
    world = World(life, data)
    was = phase_of(life)
    for _ in range(40):
        alive = world.step()
        now = phase_of(life)
        assert (was, now) != ("Running", "Pending")
        was = now
        if not alive:
            break
    else:
        life.end(world.now, 0)
        for _ in range(20):
            world.now += SHORTEST_GRACE
            world.life.decide(world.now)
            for index, each in enumerate(life.containers):
                if each.running and each.stop_by is not None and each.stop_by <= world.now:
                    world.exit(index, 137)
    assert life.decide(world.now).over
    assert phase_of(life) in ("Succeeded", "Failed")
    assert (phase_of(life) == "Succeeded") == (
        all(each.succeeded for each in life.apps) and not (life.ending and life.ending.reason)
    )


def test_init_containers_run_one_after_the_other_and_a_sidecar_stays() -> None:
    life = Life(pod(init=[container("a"), container("side", restartPolicy="Always"), container("b")]), 0.0)
    life.prepared = True
    order = []
    for _ in range(4):
        (index,) = life.decide(0.0).start
        order.append(life.containers[index].name)
        life.containers[index].starts("id", 0.0)
        if life.containers[index].role is Role.INIT:
            assert life.decide(0.0).start == ()
            life.containers[index].ends(0, 0.0, "")
    assert order == ["a", "side", "b", "main"]
    assert phase_of(life) == "Running"
    assert [each.running for each in life.containers] == [False, True, False, True]


def test_a_completed_job_takes_its_sidecar_down_and_succeeds() -> None:
    life = Life(pod(init=[container("side", restartPolicy="Always")], restartPolicy="Never"), 0.0)
    life.prepared = True
    for index in (0, 1):
        assert life.decide(0.0).start == (index,)
        life.containers[index].starts("id", 0.0)
    life.containers[1].ends(0, 5.0, "")
    (stop,) = life.decide(5.0).stop
    assert (stop.index, stop.grace) == (0, 30.0)
    assert phase_of(life) == "Running"
    life.containers[0].ends(137, 6.0, "")
    assert life.decide(6.0).over
    assert phase_of(life) == "Succeeded"


def test_a_failed_init_container_that_is_never_restarted_fails_the_pod() -> None:
    life = Life(pod(init=[container("setup")], restartPolicy="Never"), 0.0)
    life.prepared = True
    life.containers[0].starts("id", 0.0)
    life.containers[0].ends(3, 1.0, "")
    assert life.decide(1.0).over
    assert phase_of(life) == "Failed"


def test_a_deadline_ends_a_pod_that_runs() -> None:
    life = Life(pod(activeDeadlineSeconds=60), 1000.0)
    life.prepared = True
    life.containers[0].starts("id", 1000.0)
    assert life.decide(1001.0).wake == 1060.0
    assert [stop.index for stop in life.decide(1060.0).stop] == [0]
    life.containers[0].ends(0, 1061.0, "")
    assert life.decide(1061.0).over
    assert life.ending is not None
    assert (phase_of(life), life.ending.reason) == ("Failed", "DeadlineExceeded"), "however well it ended"


def test_a_second_deletion_can_only_shorten_the_grace() -> None:
    life = Life(pod(), 0.0)
    life.prepared = True
    life.containers[0].starts("id", 0.0)
    life.end(0.0, 30)
    assert [stop.grace for stop in life.decide(0.0).stop] == [30.0]
    life.end(1.0, 60)
    assert life.decide(1.0).stop == ()
    assert life.ending is not None
    assert life.ending.kill_by == 30.0
    life.end(2.0, 5)
    assert [stop.grace for stop in life.decide(2.0).stop] == [5.0]
    life.end(3.0, 0)
    assert [stop.grace for stop in life.decide(3.0).stop] == [SHORTEST_GRACE]


def test_a_pod_that_is_deleted_before_anything_started_is_over_at_once() -> None:
    life = Life(pod(), 0.0)
    life.end(0.0, 30)
    assert life.decide(0.0).over
    assert phase_of(life) == "Failed"


def test_the_next_container_waits_until_a_sidecar_says_that_it_has_started() -> None:
    slow = container("side", restartPolicy="Always", startupProbe={"tcpSocket": {"port": 1}})
    life = Life(pod(init=[slow]), 0.0)
    life.prepared = True
    life.containers[0].starts("id", 0.0)
    assert life.decide(1.0).start == ()
    life.containers[0].started = True
    assert life.decide(2.0).start == (1,)


def test_no_pause_grows_when_the_clock_is_set_back() -> None:
    made = pod()
    life = Life(made, 0.0)
    life.prepared = True
    (main,) = life.containers
    now = 1e9
    for _ in range(2):
        main.starts("0123", now)
        main.ends(1, now, "web")
    pause = main.not_before - now
    assert pause == 10.0
    now -= 3600.0
    assert life.decide(now).wake == now + pause
    assert life.decide(now + pause).start == (0,)


@given(st.lists(st.sampled_from([-3e7, -86_400.0, -5.0, 5.0, 86_400.0, 3e7]), max_size=4))
def test_nobody_gets_more_time_to_end_however_often_the_clock_is_set(jumps: list[float]) -> None:
    life = Life(pod(init=[container("side", restartPolicy="Always")]), 0.0)
    life.prepared = True
    now = 1e9
    for each in life.containers:
        each.starts("id", now)
    side, main = life.containers
    life.end(now, 30.0)
    (stop,) = life.decide(now).stop
    assert (stop.index, stop.grace) == (1, 30.0)
    for jump in jumps:
        now += jump
        assert all(each.grace <= 30.0 for each in life.decide(now).stop)
        life.end(now, 60.0)  # seen again
    main.ends(0, now, "web")
    stops = life.decide(now).stop
    assert all(SHORTEST_GRACE <= each.grace <= 30.0 for each in stops)
    assert side.stop_by is not None
    assert side.stop_by <= now + 30.0
