"""The status of a pod in the API server, computed from its life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subak.local.kubelet import moment
from subak.local.kubelet.container import CREATING, INITIALIZING, UNKNOWN, ContainerRecord, End, Progress
from subak.local.kubelet.downward import ADDRESS
from subak.local.kubelet.life import Life
from subak.local.kubelet.pod import Pod
from subak.model.manifest import Role

JsonObject = dict[str, Any]

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
SCHEME = "subak://"
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
"""The types of the kubelet's own conditions."""

_LOST = "The container could not be located when the pod was terminated"


@dataclass(frozen=True, slots=True)
class ConditionState:
    """A condition's status, and why it is not True."""

    status: bool
    reason: str = ""
    message: str = ""


def status(
    pod: Pod, life: Life, started_at: float, now: float, old: Mapping[str, Any], seen: Mapping[str, Any]
) -> JsonObject:
    """The whole status.  `old` is what was said so far; `seen` is the latest from the API server, with the gates."""
    phase = phase_of(life)
    images = [each.image for each in pod.spec.all]
    waiting = INITIALIZING if pod.spec.init_containers else CREATING
    statuses = [_container(each, image, life, waiting) for each, image in zip(life.containers, images, strict=True)]
    early = len(pod.spec.init_containers)
    made: JsonObject = {
        "observedGeneration": pod.metadata.generation,
        "phase": phase,
        "conditions": _conditions(pod, life, phase, now, old, seen),
        "hostIP": ADDRESS,
        "hostIPs": [{"ip": ADDRESS}],
        "startTime": moment.text(started_at),
        "containerStatuses": statuses[early:],
    }
    if early:
        made["initContainerStatuses"] = statuses[:early]
    if life.prepared or "podIP" in old:
        made |= {"podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
    if life.over and life.ending and life.ending.reason:
        made |= {"reason": life.ending.reason, "message": life.ending.message}
    return made


def refused(reason: str, message: str, generation: int, started_at: float) -> JsonObject:
    """The status of a pod that the node does not take."""
    return {
        "observedGeneration": generation,
        "phase": FAILED,
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "startTime": moment.text(started_at),
    }


def phase_of(life: Life) -> str:
    """The pod's phase."""
    if life.over:
        assert life.ending is not None
        done = all(each.succeeded for each in life.apps) and not life.ending.reason
        return SUCCEEDED if done else FAILED
    if not life.initialized or any(each.state is Progress.NEW for each in life.apps):
        return PENDING
    return RUNNING


def _container(container: ContainerRecord, image: str, life: Life, waiting: str) -> JsonObject:
    state, id = _state(container, life, waiting), container.id
    made: JsonObject = {
        "name": container.name,
        "state": state,
        "lastState": {},
        "ready": container.succeeded if container.role is Role.INIT else container.ready,
        "restartCount": container.restarts,
        "image": image,
        "imageID": f"{SCHEME}{image}" if id else "",
        "started": container.started,
    }
    # While it waits to be started again, its latest end is its last state.
    last = container.end if "waiting" in state and container.end else container.last
    if last is not None:
        made["lastState"] = {"terminated": _terminated(last)}
    if id:
        made["containerID"] = f"{SCHEME}{id}"
    return made


def _state(container: ContainerRecord, life: Life, waiting: str) -> JsonObject:
    if container.running and _done_before(container):
        return {"terminated": _terminated(container.last)} if container.last else {}
    if container.running:
        return {"running": {"startedAt": moment.text(container.started_at)}}
    if container.state is Progress.ENDED and container.end and (container.waiting is None or life.ending):
        return {"terminated": _terminated(container.end)}
    if life.over and life.initialized:
        return {"terminated": {"exitCode": 137, "reason": UNKNOWN, "message": _LOST}}
    if container.waiting is None:
        return {"waiting": {"reason": waiting}}
    message = {"message": container.waiting.message} if container.waiting.message else {}
    return {"waiting": {"reason": container.waiting.reason, **message}}


def _done_before(container: ContainerRecord) -> bool:
    """Whether it is an init container that succeeded before a reboot and runs again.

    Its status stays: unless the restart policy is Always, the API server refuses to take a success back.
    """
    return (
        container.role is Role.INIT
        and container.restart_policy != "Always"
        and container.last is not None
        and container.last.exit_code == 0
    )


def _terminated(end: End) -> JsonObject:
    made: JsonObject = {"exitCode": end.exit_code, "reason": end.reason}
    if end.message:
        made["message"] = end.message
    if end.started_at is not None:
        made["startedAt"] = moment.text(end.started_at)
    if end.finished_at is not None:
        made["finishedAt"] = moment.text(end.finished_at)
    if end.id:
        made["containerID"] = f"{SCHEME}{end.id}"
    return made


def _conditions(
    pod: Pod, life: Life, phase: str, now: float, old: Mapping[str, Any], seen: Mapping[str, Any]
) -> list[JsonObject]:
    containers = _containers_ready(life, phase)
    states = (
        ConditionState(life.prepared and not life.over),
        _initialized(life, phase),
        _gates(pod, containers, seen),
        containers,
        ConditionState(True),
    )
    before = {each["type"]: each for each in old.get("conditions") or ()}
    return [
        _condition(type, state, pod.metadata.generation, now, before.get(type))
        for type, state in zip(CONDITIONS, states, strict=True)
    ]


def _condition(type: str, state: ConditionState, generation: int, now: float, before: JsonObject | None) -> JsonObject:
    value = "True" if state.status else "False"
    same = before is not None and before.get("status") == value
    made = {
        "type": type,
        "observedGeneration": generation,
        "status": value,
        "lastTransitionTime": (before.get("lastTransitionTime") if before and same else None) or moment.text(now),
    }
    if state.reason:
        made["reason"] = state.reason
    if state.message:
        made["message"] = state.message
    return made


def _initialized(life: Life, phase: str) -> ConditionState:
    if phase == SUCCEEDED:
        return ConditionState(True, "PodCompleted")
    if any(each.begun for each in life.apps):
        return ConditionState(True)
    incomplete = [
        each.name
        for each in life.containers
        if (each.role is Role.INIT and not each.succeeded) or (each.role is Role.SIDECAR and not each.started)
    ]
    if incomplete:
        message = f"containers with incomplete status: [{' '.join(incomplete)}]"
        return ConditionState(False, "ContainersNotInitialized", message)
    return ConditionState(True)


def _containers_ready(life: Life, phase: str) -> ConditionState:
    if phase in (SUCCEEDED, FAILED):
        return ConditionState(False, "PodCompleted" if phase == SUCCEEDED else "PodFailed")
    unready = [each.name for each in life.containers if each.role is not Role.INIT and not each.ready]
    if unready:
        return ConditionState(False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    return ConditionState(True)


def _gates(pod: Pod, containers: ConditionState, seen: Mapping[str, Any]) -> ConditionState:
    """Ready: all containers are ready, and all readiness gates that others set are True."""
    if not containers.status or not pod.spec.readiness_gates:
        return containers
    set_by_others = {each["type"]: each.get("status") for each in seen.get("conditions") or ()}
    missing = []
    for gate in pod.spec.readiness_gates:
        type = gate.condition_type
        if type not in set_by_others:
            missing.append(f'corresponding condition of pod readiness gate "{type}" does not exist.')
        elif set_by_others[type] != "True":
            missing.append(f'the status of pod readiness gate "{type}" is not "True", but {set_by_others[type]}')
    return ConditionState(False, "ReadinessGatesNotReady", ", ".join(missing)) if missing else containers
