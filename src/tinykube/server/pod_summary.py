"""A pod in one line, as `kubectl get pods` shows it: how many containers are ready, what state it is in, how often it
was restarted.

The state is that of the container that matters most: the init container that holds the pod up, else the last container
that waits or has ended, else the pod's phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class Summary:
    """What the line says.  `restarted` is when a container last ended to be restarted, empty if none did."""

    ready: int
    total: int
    state: str
    restarts: int = 0
    restarted: str = ""

    def note_restarts(self, container: Json) -> None:
        """Count the restarts of a container."""
        self.restarts += container.get("restartCount", 0)
        ended = (container.get("lastState") or {}).get("terminated")
        if ended:
            self.restarted = max(self.restarted, ended.get("finishedAt") or "")


def summary(pod: Json) -> Summary:
    """What is to be said of a pod."""
    spec, status = pod.get("spec", {}), pod.get("status", {})
    phase = status.get("phase", "")
    state = status.get("reason") or phase
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        state = "SchedulingGated"
    sidecars = {each["name"] for each in spec.get("initContainers", []) if each.get("restartPolicy") == "Always"}
    line = Summary(0, len(spec.get("containers", [])) + len(sidecars), state)
    begun, initializing = _initial(line, pod, sidecars)
    if not initializing or conditions.get("Initialized", {}).get("status") == "True":
        line.restarts, line.restarted = begun.restarts, begun.restarted
        _running(line, status, conditions.get("Ready", {}).get("status") == "True")
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            line.state = "Unknown"
        elif phase not in ("Succeeded", "Failed"):
            line.state = "Terminating"
    return line


def _initial(line: Summary, pod: Json, sidecars: set[str]) -> tuple[Summary, bool]:
    """Go through the init containers: the restarts of sidecars, and whether one of the others holds the pod up."""
    sidecar_line = Summary(0, 0, "")
    count = len(pod.get("spec", {}).get("initContainers", []))
    for index, container in enumerate(pod.get("status", {}).get("initContainerStatuses", [])):
        line.note_restarts(container)
        sidecar = container["name"] in sidecars
        if sidecar:
            sidecar_line.note_restarts(container)
        ended, waiting = _state(container)
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            line.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            line.state = "Init:" + _ending(ended)
        elif waiting not in ("", "PodInitializing"):
            line.state = f"Init:{waiting}"
        else:
            line.state = f"Init:{index}/{count}"
        return sidecar_line, True
    return sidecar_line, False


def _running(line: Summary, status: Json, pod_ready: bool) -> None:
    running, failure = False, ""
    for container in reversed(status.get("containerStatuses", [])):
        line.note_restarts(container)
        ended, waiting = _state(container)
        if waiting:
            line.state = waiting
        elif ended is not None:
            line.state = _ending(ended)
            if ended.get("exitCode"):
                failure = line.state
        elif container.get("ready") and "running" in container.get("state", {}):
            running = True
            line.ready += 1
    if line.state == "Completed":
        if running and pod_ready:
            line.state = "Running"
        elif failure:
            line.state = failure
        elif running:
            line.state = "NotReady"


def _state(container: Json) -> tuple[Json | None, str]:
    """How a container ended, or why it waits."""
    state = container.get("state") or {}
    return state.get("terminated"), (state.get("waiting") or {}).get("reason") or ""


def _ending(ended: Json) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"
