"""What can be done to a pod besides reading and writing it: bind it to a node, evict it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec

from tinykube.admission import CREATE
from tinykube.server import errors
from tinykube.server.deletion import check, delete
from tinykube.server.kinds import NODE, POD, Kind
from tinykube.server.options import DeleteOptions, WriteOptions
from tinykube.server.registry import Registry, Target, check_uid, storage_error
from tinykube.server.store import Stored
from tinykube.status import ApiError

Json = dict[str, Any]

BINDING = Kind("", "v1", "Binding", "bindings", "binding")
EVICTION = Kind("policy", "v1", "Eviction", "evictions", "eviction")
# In refusals it has another name.
_REFUSED = Kind("", "v1", "Binding", "pods/binding")
_METADATA = ("name", "namespace", "uid", "resourceVersion", "annotations", "labels")
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class _Reference(msgspec.Struct, forbid_unknown_fields=True):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    name: str = ""


class Binding(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `pods/NAME/binding`: the node, what to note on the pod, and which pod is meant."""

    kind: Literal["", "Binding"] = ""
    api_version: Literal["", "v1"] = msgspec.field(default="", name="apiVersion")
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    target: _Reference = msgspec.field(default_factory=_Reference)


def quick_binding(content: bytes | Json) -> Binding | None:
    """What the body of a request says; None if there is more to it, so that the rules must read it."""
    try:
        return msgspec.json.decode(content, type=Binding) if isinstance(content, bytes) else None
    except msgspec.DecodeError:
        return None


def binding(object: Json) -> Binding:
    """The same of an object that the rules have read."""
    given = object["metadata"]
    metadata = {key: given[key] for key in _METADATA if key in given}
    target = object.get("target", {})
    return Binding(
        metadata=msgspec.convert(metadata, type=_Metadata),
        target=_Reference(kind=target.get("kind", ""), name=target.get("name", "")),
    )


def bind(registry: Registry, target: Target, binding: Binding, options: WriteOptions) -> None:
    """Set a pod's node, and its annotations in the same write."""
    metadata, node = binding.metadata, binding.target
    reviewed = target if target.name else Target(BINDING, target.namespace)
    target = target if target.name else replace(target, name=metadata.name)
    if metadata.namespace and metadata.namespace != target.namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)
    if metadata.name != target.name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    if node.kind not in ("", "Node"):
        message = f'target.kind: Unsupported value: "{node.kind}": supported values: "Node", "<empty>"'
        raise ApiError(500, "", message)
    if not node.name:
        raise ApiError(500, "", "target.name: Required value")
    registry.review(CREATE, reviewed, msgspec.to_builtins(binding), None, options)
    stored = registry.find(target)
    _check_free(target, stored, metadata)
    labels = {**_topology(registry, node), **metadata.labels}
    bound = _bound(stored.object, node.name, metadata.annotations, labels, registry.now())
    registry.put(POD, bound, stored, options.dry_run)


def _check_free(target: Target, stored: Stored, metadata: _Metadata) -> None:
    pod = stored.object
    check_uid(target, pod, metadata.uid)
    if metadata.resource_version and metadata.resource_version != str(stored.revision):
        asked, found = metadata.resource_version, stored.revision
        why = f"Precondition failed: ResourceVersion in precondition: {asked}, ResourceVersion in object meta: {found}"
        raise errors.conflict(POD, target.name, storage_error(target, why))
    name, spec = target.name, pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        raise errors.conflict(_REFUSED, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise errors.conflict(_REFUSED, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise errors.conflict(_REFUSED, name, f"pod {name} has non-empty .spec.schedulingGates")


def _topology(registry: Registry, reference: _Reference) -> dict[str, str]:
    """The labels that a pod inherits from its node."""
    node = registry.store.get(NODE, "", reference.name) if reference.kind == "Node" else None
    labels = (node or {"metadata": {}})["metadata"].get("labels", {})
    return {key: labels[key] for key in _TOPOLOGY if key in labels}


def _bound(pod: Json, node: str, annotations: dict[str, str], labels: dict[str, str], now: str) -> Json:
    metadata, status = dict(pod["metadata"]), dict(pod.get("status", {}))
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    if labels:
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
    status.pop("nominatedNodeName", None)
    status["conditions"] = with_condition(status.get("conditions", []), {"type": "PodScheduled", "status": "True"}, now)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def with_condition(conditions: list[Json], condition: Json, now: str) -> list[Json]:
    """Conditions with one set; it changed now, unless its status is what it was."""
    condition = {"lastProbeTime": None, "lastTransitionTime": now, **condition}
    for index, each in enumerate(conditions):
        if each["type"] == condition["type"]:
            if each["status"] == condition["status"]:
                condition["lastTransitionTime"] = each.get("lastTransitionTime")
            return [*conditions[:index], condition, *conditions[index + 1 :]]
    return [*conditions, condition]


def evict(registry: Registry, target: Target, eviction: Json, options: DeleteOptions) -> None:
    """Delete a pod, and note on it that it was evicted."""
    if eviction.get("metadata", {}).get("name", "") != target.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    stored = registry.find(target)
    check(target, stored.object, options)
    if not options.dry_run:
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }  # fmt: skip
        status = dict(stored.object.get("status", {}))
        status["conditions"] = with_condition(status.get("conditions", []), condition, registry.now())
        stored = registry.put(POD, {**stored.object, "status": status}, stored)
        if options.version is not None:
            options = replace(options, version=str(stored.revision))
    delete(registry, target, options)
