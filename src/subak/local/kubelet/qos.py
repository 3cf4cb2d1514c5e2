"""The class of a pod, by what it is promised: `Guaranteed`, `Burstable` or `BestEffort`."""

from __future__ import annotations

from subak.local.kubelet.pod import Spec
from subak.model.quantity import Quantity

COUNTED = ("cpu", "memory")


def qos_class(spec: Spec) -> str:
    """Guaranteed if every container has as much cpu and memory as it may use, BestEffort if none is promised any."""
    guaranteed, promised = True, False
    for container in spec.all:
        resources = container.resources
        limits = {name: Quantity.parse(each) for name, each in ((resources and resources.limits) or {}).items()}
        requests = {name: Quantity.parse(each) for name, each in ((resources and resources.requests) or {}).items()}
        for name in COUNTED:
            promised = promised or bool(limits.get(name)) or bool(requests.get(name))
            limit = limits.get(name)
            guaranteed = guaranteed and bool(limit) and requests.get(name, limit) == limit
    if not promised:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"
