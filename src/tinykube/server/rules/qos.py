"""How well a pod is served when a node runs short: by what it asked for."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import scalars

Json = dict[str, Any]

_NAMES = ("cpu", "memory")


def qos_class(spec: Json) -> str:
    """Guaranteed if all is limited and requested in full, BestEffort if nothing is asked for, else Burstable."""
    if "resources" in spec:
        parts = [spec["resources"]]
    else:
        parts = [each["resources"] for each in [*(spec.get("containers") or ()), *spec.get("initContainers", ())]]
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    complete = True
    for part in parts:
        if not part:
            complete = False
            continue
        _add(requests, part.get("requests"))
        if _add(limits, part.get("limits")) < len(_NAMES):
            complete = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if complete and requests == limits else "Burstable"


def _add(total: dict[str, int], given: dict[str, str] | None) -> int:
    """How many of the two there are."""
    count = 0
    if given:
        for name in _NAMES:
            amount = scalars.nanos(given[name]) if name in given else 0
            if amount > 0:
                count += 1
                total[name] = total.get(name, 0) + amount
    return count
