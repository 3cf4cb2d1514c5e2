from __future__ import annotations

from typing import Any

from subak.local.kubelet.difference import changes
from subak.local.kubelet.life import Life
from subak.local.kubelet.pod import Pod
from subak.local.kubelet.status import status
from tests.support.kubelet.pods import container, pod


def status_of(pod: Pod, life: Life, now: float = 0.0, old: dict[str, Any] | None = None, **seen: Any) -> dict[str, Any]:
    return status(pod, life, 0.0, now, old or {}, seen)


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


def running(each: Pod) -> Life:
    life = Life(each, 0.0)
    life.prepared = True
    life.decide(0.0)
    for record in life.containers:
        record.starts("0123", 0.0)
    return life


def test_a_new_pod_says_what_it_waits_for() -> None:
    made = pod(container("a"), container("b"))
    now = status_of(made, Life(made, 0.0))
    assert now["phase"] == "Pending"
    assert now["startTime"] == "1970-01-01T00:00:00Z"
    assert now["hostIP"] == "127.0.0.1"
    assert "podIP" not in now
    assert [each["state"] for each in now["containerStatuses"]] == [{"waiting": {"reason": "ContainerCreating"}}] * 2
    assert conditions(now) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    ready = next(each for each in now["conditions"] if each["type"] == "Ready")
    assert ready["message"] == "containers with unready status: [a b]"


def test_a_running_pod_is_ready_and_says_since_when() -> None:
    made = pod()
    now = status_of(made, running(made))
    assert now["phase"] == "Running"
    assert set(conditions(now).values()) == {"True"}
    assert now["podIPs"] == [{"ip": "127.0.0.1"}]
    (main,) = now["containerStatuses"]
    assert main == {
        "name": "main",
        "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}},
        "lastState": {},
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "busybox",
        "imageID": "subak://busybox",
        "containerID": "subak://0123",
    }


def test_waiting_init_containers_are_named() -> None:
    made = pod(init=[container("setup")])
    now = status_of(made, Life(made, 0.0))
    assert now["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = next(each for each in now["conditions"] if each["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [setup]"


def test_a_crash_loop_shows_its_last_end_and_keeps_the_pod_running() -> None:
    made = pod()
    life = running(made)
    for code in (1, 2):
        life.containers[0].ends(code, 5.0, "web_default(1)")
        if code == 1:
            life.containers[0].starts("4567", 5.0)
    now = status_of(made, life)
    (main,) = now["containerStatuses"]
    assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main["lastState"]["terminated"]["exitCode"] == 2
    assert main["lastState"]["terminated"]["containerID"] == "subak://4567"
    assert main["restartCount"] == 1
    assert now["phase"] == "Running"


def test_a_crash_loop_that_is_deleted_shows_how_it_ended() -> None:
    made = pod()
    life = running(made)
    life.containers[0].ends(1, 5.0, "")
    life.containers[0].starts("4567", 5.0)
    life.containers[0].ends(2, 6.0, "")
    life.end(7.0, 30)
    now = status_of(made, life)
    assert now["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 2
    assert now["phase"] == "Failed"


def test_a_pod_that_failed_to_initialize_says_so_of_those_who_never_came_to_run() -> None:
    made = pod(init=[container("setup")], restartPolicy="Never")
    life = Life(made, 0.0)
    life.containers[0].starts("0123", 0.0)
    life.containers[0].ends(3, 1.0, "")
    life.decide(1.0)
    now = status_of(made, life)
    assert now["phase"] == "Failed"
    assert now["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert now["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_completed_pod_says_so_in_its_conditions() -> None:
    made = pod(restartPolicy="Never")
    life = running(made)
    life.containers[0].ends(0, 5.0, "")
    life.decide(5.0)
    now = status_of(made, life)
    assert now["phase"] == "Succeeded"
    reasons = {each["type"]: each.get("reason") for each in now["conditions"]}
    assert reasons["Ready"] == reasons["ContainersReady"] == reasons["Initialized"] == "PodCompleted"
    assert now["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"


def test_a_pod_past_its_deadline_says_why_it_failed() -> None:
    made = pod(activeDeadlineSeconds=1)
    life = Life(made, 0.0)
    life.decide(2.0)
    now = status_of(made, life)
    assert (now["phase"], now["reason"]) == ("Failed", "DeadlineExceeded")
    assert now["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_readiness_gate_holds_the_pod_back_until_somebody_opens_it() -> None:
    made = pod(readinessGates=[{"conditionType": "example.com/fed"}])
    life = running(made)
    assert conditions(status_of(made, life))["Ready"] == "False"
    fed = [{"type": "example.com/fed", "status": "True"}]
    assert conditions(status_of(made, life, conditions=fed))["Ready"] == "True"


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    made = pod()
    before = status_of(made, Life(made, 0.0), now=100.0)
    after = status_of(made, running(made), now=200.0, old=before)
    times = {each["type"]: each["lastTransitionTime"] for each in after["conditions"]}
    assert times["PodScheduled"] == "1970-01-01T00:01:40Z"
    assert times["Ready"] == "1970-01-01T00:03:20Z"


def test_only_what_changed_is_written() -> None:
    made = pod()
    before = status_of(made, Life(made, 0.0), now=100.0)
    after = status_of(made, running(made), now=200.0, old=before)
    patch = changes(before, after)
    assert set(patch) == {"phase", "podIP", "podIPs", "conditions", "containerStatuses"}
    assert {each["type"] for each in patch["conditions"]} == {"PodReadyToStartContainers", "Ready", "ContainersReady"}
    ready = next(each for each in patch["conditions"] if each["type"] == "Ready")
    assert (ready["reason"], ready["message"]) == (None, None), "what is gone is taken back"
    assert changes(after, after) == {}
