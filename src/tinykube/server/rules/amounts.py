"""What a pod asks for as a whole: the sum of what runs at the same time, at the worst moment.

Init containers run one after the other before the others, so the largest of them counts; those that are always
restarted stay beside all that come after them.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import scalars

Amounts = dict[str, str]
Json = dict[str, Any]

POD_LEVEL = ("cpu", "memory")


def requests(pod: Json) -> Amounts:
    """What a pod requests, its own overhead included."""
    return _whole(pod, "requests")


def limits(pod: Json) -> Amounts:
    """What a pod is limited to; its overhead counts only where there is a limit."""
    return _whole(pod, "limits")


def of_containers(spec: Json, which: str) -> Amounts:
    """What a pod's containers ask for together."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, container.get("resources", {}).get(which))
    beside: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers", ()):
        own = container.get("resources", {}).get(which)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(beside, own)
            _widen(most, beside)
        else:
            alone = dict(beside)
            _add(alone, own)
            _widen(most, alone)
    _widen(total, most)
    return total


def is_pod_level(name: str) -> bool:
    """Whether an amount of this resource may be given for a pod as a whole."""
    return name in POD_LEVEL or name.startswith("hugepages-")


def _whole(pod: Json, which: str) -> Amounts:
    spec = pod["spec"]
    total = of_containers(spec, which)
    own = spec.get("resources", {}).get(which, {})
    total.update({name: amount for name, amount in own.items() if is_pod_level(name)})
    overhead = spec.get("overhead") or {}
    _add(total, overhead if which == "requests" else {k: v for k, v in overhead.items() if k in total})
    return total


def _add(total: Amounts, more: Amounts | None) -> None:
    for name, amount in (more or {}).items():
        total[name] = scalars.sum_of(total[name], amount) if name in total else amount


def _widen(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        if name not in total or scalars.nanos(total[name]) < scalars.nanos(amount):
            total[name] = amount
