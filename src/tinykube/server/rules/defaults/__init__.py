"""What the API server fills in where a user says nothing.

`fill` completes an object that was just decoded, in place.  Most kinds have a line or two, pods and services a module.
The same goes for fields that are two names of one thing: both are set.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from tinykube.server import kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules import scalars
from tinykube.server.rules.defaults import pod, service, workload

Json = dict[str, Any]


def fill(kind: Kind, object: Json) -> None:
    """Set what is not set."""
    completed = _OF.get(kind)
    if completed is not None:
        completed(object)


def _namespace(object: Json) -> None:
    name = object["metadata"].get("name")
    if name:
        labels = object["metadata"].setdefault("labels", {})
        labels["kubernetes.io/metadata.name"] = name
    object["status"].setdefault("phase", "Active")


def _node(object: Json) -> None:
    status, spec = object["status"], object["spec"]
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))
    for each in ("capacity", "allocatable"):
        if each in status:
            scalars.in_thousandths(status[each])
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs")
    if first and (not ranges or ranges[0] != first):
        spec["podCIDRs"] = [first]
    elif ranges:
        spec["podCIDR"] = ranges[0]


def _secret(object: Json) -> None:
    object.setdefault("type", "Opaque")
    texts = object.pop("stringData", None)
    if texts:
        given = object.setdefault("data", {})
        given.update({key: base64.b64encode(text.encode()).decode() for key, text in texts.items()})


def _quota(object: Json) -> None:
    for part in (object["spec"], object["status"]):
        for each in ("hard", "used"):
            if each in part:
                scalars.in_thousandths(part[each])


def _priority_class(object: Json) -> None:
    object.setdefault("preemptionPolicy", "PreemptLowerPriority")


_OF: dict[Kind, Callable[[Json], None]] = {
    kinds.POD: pod.fill,
    kinds.SERVICE: service.fill,
    kinds.NAMESPACE: _namespace,
    kinds.NODE: _node,
    kinds.SECRET: _secret,
    kinds.RESOURCE_QUOTA: _quota,
    kinds.PRIORITY_CLASS: _priority_class,
    kinds.DEPLOYMENT: workload.deployment,
    kinds.REPLICA_SET: workload.replica_set,
    kinds.DAEMON_SET: workload.daemon_set,
    kinds.JOB: workload.job,
}
