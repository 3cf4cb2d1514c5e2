from __future__ import annotations

from typing import Any

import pytest

from tests.tinykube.server.controllers.workshop import Workshop
from tinykube.server.controllers.owners import ended_at, pause_after
from tinykube.server.kinds import JOB, POD
from tinykube.status import ApiError

ONCE = {"restartPolicy": "Never"}


def test_after_each_failure_the_next_attempt_waits_longer() -> None:
    world = Workshop()
    world.make(JOB, pod=ONCE, backoffLimit=3)
    world.settle()
    for pause in (10, 20, 40):
        world.set_phase(world.pods("Pending")[0], "Failed")
        world.pass_time(pause - 1)
        assert world.pods("Pending") == []
        world.pass_time(1)
        assert len(world.pods("Pending")) == 1
    world.set_phase(world.pods("Pending")[0], "Failed")
    world.settle()
    assert world.conditions(JOB)["Failed"] == ("True", "BackoffLimitExceeded")
    assert world.object(JOB)["status"]["failed"] == 4


def test_however_many_pods_fail_at_once_the_longest_pause_is_enough() -> None:
    pod = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Failed"}}
    ended = ended_at(pod)
    for many in (100, 5_000):
        assert pause_after([pod] * many, ended, longest=360.0) == 360.0
        assert pause_after([pod] * many, ended + 360.0, longest=360.0) == 0.0


def test_containers_that_are_restarted_too_often_fail_the_job() -> None:
    world = Workshop()
    world.make(JOB, pod={"restartPolicy": "OnFailure"}, backoffLimit=2)
    world.run_all()
    (pod,) = world.pods()
    for restarts in (1, 2):
        assert "Failed" not in world.conditions(JOB)
        stored = world.store.stored(POD, "default", pod["metadata"]["name"])
        assert stored is not None
        status = {**stored.object["status"], "containerStatuses": [{"name": "c", "restartCount": restarts}]}
        world.registry.put(POD, {**stored.object, "status": status}, stored)
        world.settle()
    assert world.conditions(JOB) == {"FailureTarget": ("True", "BackoffLimitExceeded")}
    world.reap()  # nobody says that it is over while something runs
    assert world.conditions(JOB)["Failed"] == ("True", "BackoffLimitExceeded")
    assert world.pods() == []


def test_parallelism_can_be_changed_on_the_way() -> None:
    world = Workshop()
    world.make(JOB, pod=ONCE, completions=10, parallelism=2)
    world.settle()
    world.change(JOB, parallelism=5)
    world.settle()
    assert len(world.pods("Pending")) == 5
    world.change(JOB, parallelism=1)
    world.settle()
    assert len(world.pods("Pending")) == 1


def test_a_job_that_keeps_its_pods_for_a_while_is_deleted_with_them_later() -> None:
    world = Workshop()
    world.make(JOB, pod=ONCE, ttlSecondsAfterFinished=60)
    world.settle()
    world.set_phase(world.pods()[0], "Succeeded")
    world.pass_time(59)
    assert world.conditions(JOB)["Complete"] == ("True", "CompletionsReached")
    world.pass_time(1)
    assert (world.names(JOB), world.pods()) == ([], [])


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"completionMode": "Indexed", "completions": 2},
            "spec.completionMode: Forbidden: is not supported by this server",
        ),
        (
            {"suspend": True},
            "spec.suspend: Forbidden: is not supported by this server; create the Job when it may start",
        ),
        ({"managedBy": "example.com/else"}, "spec.managedBy: Forbidden: is not supported by this server; leave it out"),
        ({"podFailurePolicy": {"rules": []}}, "spec.podFailurePolicy: Forbidden: is not supported by this server"),
    ],
)
def test_what_is_not_done_is_refused(spec: dict[str, Any], told: str) -> None:
    world = Workshop()
    with pytest.raises(ApiError) as refused:
        world.make(JOB, pod=ONCE, **spec)
    assert told in refused.value.message
