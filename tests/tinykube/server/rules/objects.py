"""Objects to try the rules on, and small changes to them."""

from __future__ import annotations

import copy
import re
from typing import Any

Json = dict[str, Any]

REMOVED = object()


def changed(base: Json, changes: dict[str, Any]) -> Json:
    """A copy with values set at paths such as `spec.containers[0].image`."""
    made = copy.deepcopy(base)
    for path, value in changes.items():
        steps = [int(step[1:-1]) if step[0] == "[" else step for step in re.findall(r"\[\d+\]|[^.\[]+", path)]
        here: Any = made
        for index, step in enumerate(steps[:-1]):
            if isinstance(here, dict) and step not in here:
                here[step] = [] if isinstance(steps[index + 1], int) else {}
            if isinstance(here, list) and step == len(here):
                here.append({})
            here = here[step]
        last = steps[-1]
        if value is REMOVED:
            here.pop(last)
        elif isinstance(here, list) and last == len(here):
            here.append(copy.deepcopy(value))
        else:
            here[last] = copy.deepcopy(value)
    return made


def pod(changes: dict[str, Any] | None = None) -> Json:
    """The smallest pod."""
    containers = [{"name": "main", "image": "busybox"}]
    return named("Pod", {"spec.containers": containers} | (changes or {}))


def named(kind: str, changes: dict[str, Any] | None = None, version: str = "v1", *, namespace: str = "default") -> Json:
    """An object with nothing but a name."""
    meta = {"name": "one", "namespace": namespace} if namespace else {"name": "one"}
    return changed({"apiVersion": version, "kind": kind, "metadata": meta}, changes or {})


def service(changes: dict[str, Any] | None = None) -> Json:
    """The smallest service."""
    return named("Service", {"spec.ports": [{"port": 80}]} | (changes or {}))
