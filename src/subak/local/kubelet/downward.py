"""The downward API: fields of a pod, and amounts of its containers, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from subak.local.kubelet.pod import Container, FieldRef, Pod, ResourceFieldRef
from subak.model.manifest import Amount
from tinykube.quantity import Quantity

ADDRESS = "127.0.0.1"
"""The address of every pod and node: all of them use this machine's network."""

_SUBSCRIPT = re.compile(r"(?P<path>.+?)\['(?P<key>.*)'\]", re.DOTALL)
_MILLI = 10**6
_WHOLE = 10**9


class NoSuchField(ValueError):
    """A field that the downward API does not have."""


def field(pod: Pod, ref: FieldRef) -> str:
    """The text of a field.  A label or annotation that is not there is empty."""
    path = ref.field_path
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        match subscript["path"]:
            case "metadata.labels":
                return (pod.metadata.labels or {}).get(subscript["key"], "")
            case "metadata.annotations":
                return (pod.metadata.annotations or {}).get(subscript["key"], "")
        raise NoSuchField(f'fieldPath "{path}" does not support subscript')
    match path:
        case "metadata.name":
            return pod.name
        case "metadata.namespace":
            return pod.namespace
        case "metadata.uid":
            return pod.metadata.uid
        case "metadata.labels":
            return _lines(pod.metadata.labels or {})
        case "metadata.annotations":
            return _lines(pod.metadata.annotations or {})
        case "spec.nodeName":
            return pod.spec.node_name
        case "spec.serviceAccountName":
            return pod.spec.service_account_name
        case "status.podIP" | "status.podIPs" | "status.hostIP" | "status.hostIPs":
            return ADDRESS
    raise NoSuchField(f"unsupported fieldPath: {path}")


def amount(pod: Pod, container: Container | None, ref: ResourceFieldRef, allocatable: Mapping[str, Amount]) -> str:
    """An amount in units of the divisor, rounded up; without a limit, what the node has."""
    if ref.container_name:
        container = next((each for each in pod.spec.all if each.name == ref.container_name), None)
    if container is None:
        raise NoSuchField(f"container {ref.container_name} not found")
    which, _, name = ref.resource.partition(".")
    if which not in ("limits", "requests") or not (
        name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
    ):
        raise NoSuchField(f"unsupported container resource : {ref.resource}")
    resources = container.resources
    amounts = (resources and (resources.limits if which == "limits" else resources.requests)) or {}
    quantity = Quantity.parse(amounts.get(name, "0"))
    if which == "limits" and not quantity and not name.startswith("hugepages-"):
        quantity = Quantity.parse(allocatable.get(name, "0"))
    unit = _MILLI if name == "cpu" else _WHOLE
    divisor = Quantity.parse(ref.divisor) or Quantity.of(1)
    return str(-(-_ceil(quantity.nanos, unit) // _ceil(divisor.nanos, unit)))


def _ceil(nanos: int, unit: int) -> int:
    return -(-nanos // unit)


def _lines(pairs: Mapping[str, str]) -> str:
    """`key="value"` lines in the order of the keys, as the downward API writes maps."""
    return "\n".join(f"{key}={json.dumps(pairs[key], ensure_ascii=False)}" for key in sorted(pairs))
