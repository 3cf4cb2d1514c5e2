"""The state of a pod's containers in words: which one ended and with which exit code, or what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from signal import Signals
from typing import Any


def of_containers(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers of a pod's status as data for scripts; init containers come first."""
    for group in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(group) or ():
            (state, detail), *_ = list((each.get("state") or {}).items()) or [("waiting", {})]
            ended = detail if state == "terminated" else (each.get("lastState") or {}).get("terminated") or {}
            yield {
                "name": each.get("name", ""),
                "state": state,
                "reason": detail.get("reason", ""),
                "message": (detail.get("message") or ended.get("message") or "").strip(),
                "exit_code": ended.get("exitCode"),
                "restarts": each.get("restartCount", 0),
            }


def sentence(container: dict[str, Any]) -> str:
    """A sentence about a container; empty if it simply runs, or has not begun."""
    name, message = container["name"], f": {container['message']}" if container["message"] else ""
    code, reason = container["exit_code"], container["reason"]
    if container["state"] == "terminated":
        why = f" ({reason})" if reason not in ("", "Completed", "Error") else ""
        return f"container {name} ended with {_code(code)}{why}{message}"
    again = f"; before it ended with {_code(code)}, {container['restarts']} restarts" if code is not None else ""
    if container["state"] == "waiting" and (again or reason not in ("", "ContainerCreating", "PodInitializing")):
        return f"container {name} waits ({reason}){message}{again}"
    return f"container {name} runs again{again}" if again else ""


def _code(code: int | None) -> str:
    """An exit code, with the signal that it stands for."""
    try:
        return f"exit code {code}" + (f" ({Signals(code - 128).name})" if code is not None and code > 128 else "")
    except ValueError:
        return f"exit code {code}"
