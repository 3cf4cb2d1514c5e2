from __future__ import annotations

import pytest

from subak.local.kubelet.container import ContainerRecord, Waiting, duration
from subak.model.manifest import Role


def crash(container: ContainerRecord, began: float, ended: float) -> None:
    container.starts("id", began)
    container.ends(1, ended, "web_default(1)")


def test_a_crashing_container_waits_longer_each_time_and_never_more_than_five_minutes() -> None:
    container = ContainerRecord("main", Role.APP, "Always")
    now, waits = 0.0, []
    for _ in range(8):
        crash(container, now, now + 1)
        waits.append(container.not_before - (now + 1))
        now = container.not_before
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert container.restarts == 7


def test_the_first_restart_is_immediate_and_the_second_is_announced() -> None:
    container = ContainerRecord("main", Role.APP, "Always")
    seen = []
    for began in (0.0, 1.0):
        crash(container, began, began + 1.0)
        seen.append(container.waiting)
    message = "back-off 10s restarting failed container=main pod=web_default(1)"
    assert seen == [None, Waiting("CrashLoopBackOff", message)]


def test_ten_good_minutes_are_forgiving() -> None:
    container = ContainerRecord("main", Role.APP, "Always")
    for began, ended in ((0.0, 1.0), (1.0, 2.0), (12.0, 700.0)):
        crash(container, began, ended)
    assert container.not_before == 700.0
    assert container.waiting is None


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_who_is_started_again(policy: str, code: int, again: bool) -> None:
    container = ContainerRecord("main", Role.APP, policy)
    container.starts("id", 0.0)
    container.ends(code, 1.0, "")
    assert container.wants_start is again


def test_an_init_container_that_succeeded_is_done_under_any_policy() -> None:
    container = ContainerRecord("setup", Role.INIT, "Always")
    container.starts("id", 0.0)
    container.ends(0, 1.0, "")
    assert not container.wants_start


def test_what_cannot_be_started_is_tried_again_soon_and_then_less_often() -> None:
    container = ContainerRecord("main", Role.APP, "Always")
    waits = []
    for _ in range(6):
        container.fails_to_start("CreateContainerConfigError", "no", 100.0)
        waits.append(container.not_before - 100.0)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_a_probed_container_is_ready_when_its_probes_say_so() -> None:
    container = ContainerRecord("main", Role.APP, "Always", has_startup_probe=True, has_readiness_probe=True)
    container.starts("id", 0.0)
    assert (container.started, container.ready) == (False, False)
    plain = ContainerRecord("main", Role.APP, "Always")
    plain.starts("id", 0.0)
    assert (plain.started, plain.ready) == (True, True)


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s")])
def test_durations_are_written_as_kubelets_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
