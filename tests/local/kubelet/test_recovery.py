"""After a restart of the kubelet, pods go on as after a reboot of the machine."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.local.kubelet import recovery
from subak.local.kubelet.life import Life
from subak.local.kubelet.status import phase_of, status
from tests.support.kubelet.pods import container, pod

RUNNING = {"running": {"startedAt": "2026-11-15T08:00:00Z"}}
DONE = {
    "terminated": {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-11-15T08:00:00Z",
        "finishedAt": "2026-11-15T08:00:01Z",
        "containerID": "subak://1",
    }
}


def recovered(found: dict[str, Any], **spec: Any) -> Life:
    life = Life(pod(**spec), 0.0)
    read = recovery.read(msgspec.Raw(msgspec.json.encode({"phase": "Running", **found})))
    recovery.recover(life, read, 1000.0)
    life.prepared = True
    return life


def said(name: str, state: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "restartCount": 2, "containerID": "subak://1", **rest}


def test_what_ran_is_started_again_at_once_and_counted() -> None:
    life = recovered({"containerStatuses": [said("main", RUNNING)]})
    assert phase_of(life) == "Running"
    assert life.decide(1000.0).start == (0,)
    life.containers[0].starts("2", 1000.0)
    now = status(pod(), life, 0.0, 1000.0, {}, {})["containerStatuses"][0]
    assert now["restartCount"] == 3
    assert now["lastState"]["terminated"] == {
        "exitCode": 255,
        "reason": "Unknown",
        "startedAt": "2026-11-15T08:00:00Z",
        "finishedAt": "1970-01-01T00:16:40Z",
        "containerID": "subak://1",
    }


def test_what_is_never_restarted_has_failed() -> None:
    life = recovered({"containerStatuses": [said("main", RUNNING)]}, restartPolicy="Never")
    assert life.decide(1000.0).over
    assert phase_of(life) == "Failed"


def test_a_job_that_was_done_with_half_of_its_work_does_the_other_half() -> None:
    life = recovered(
        {"containerStatuses": [said("main", DONE), said("other", RUNNING)]},
        containers=[container("main"), container("other")],
        restartPolicy="OnFailure",
    )
    assert life.decide(1000.0).start == (1,)


def test_init_containers_run_again_first() -> None:
    life = recovered(
        {"initContainerStatuses": [said("setup", DONE)], "containerStatuses": [said("main", RUNNING)]},
        init=[container("setup")],
    )
    assert phase_of(life) == "Pending"
    assert life.decide(1000.0).start == (0,)
    life.containers[0].starts("2", 1000.0)
    life.containers[0].ends(0, 1001.0, "")
    assert life.decide(1001.0).start == (1,)


def test_a_crash_loop_forgets_its_pause() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    life = recovered({"containerStatuses": [said("main", waiting, lastState=DONE)]})
    assert life.decide(1000.0).start == (0,)
    life.containers[0].starts("2", 1000.0)
    assert life.containers[0].restarts == 3
    life.containers[0].ends(1, 1001.0, "")
    assert life.decide(1001.0).start == (0,)


def test_a_pod_that_had_not_started_begins_as_new() -> None:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    life = recovered({"phase": "Pending", "containerStatuses": [{"name": "main", "state": waiting}]})
    assert life.decide(1000.0).start == (0,)
    life.containers[0].starts("2", 1000.0)
    assert life.containers[0].restarts == 0


def test_a_failed_init_container_that_is_never_restarted_stays_failed() -> None:
    failed = {"terminated": {"exitCode": 3, "reason": "Error"}}
    waiting = {"waiting": {"reason": "PodInitializing"}}
    life = recovered(
        {
            "phase": "Pending",
            "initContainerStatuses": [said("setup", failed)],
            "containerStatuses": [{"name": "main", "state": waiting}],
        },
        init=[container("setup")],
        restartPolicy="Never",
    )
    assert life.decide(1000.0).over
    assert phase_of(life) == "Failed"
