"""Pods for nodes without NRI, from what a user writes to what the API server has after the Binding."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.admission.review import review
from subak.admission.slots import slotted
from subak.dialects import mark
from subak.model import manifest
from subak.model.node import Node
from subak.node.machine import Machine
from subak.policy.place import place
from subak.policy.registry import shaped
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER


def described(machine: Machine, way: str = mark.PLUGIN) -> Node:
    """The node of a machine as schedulers see it, with our agent unless `way` is empty."""
    said = machine.publish()
    allocatable = {**said.allocatable, "subak.io/slot": "256"} if way == mark.PLUGIN else said.allocatable
    node = manifest.Node(
        metadata=manifest.Metadata(
            name=machine.name,
            labels=dict(said.labels),
            annotations={**said.annotations, **({mark.MARK: way} if way else {})},
        ),
        status=manifest.NodeStatus(capacity=dict(said.capacity), allocatable=dict(allocatable)),
    )
    device = None if said.device is None else msgspec.convert(said.device, manifest.Device)
    return INTERPRETER.node(node, device)[0]


def written(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A pod as its user writes it."""
    named = [{"name": f"c{n}", **each} for n, each in enumerate(containers)]
    return {"metadata": {"name": "p", "uid": "u-p", "namespace": "default", **metadata}, "spec": {"containers": named}}


def stored(pod: dict[str, Any]) -> manifest.Pod:
    """The pod as admission leaves it."""
    return msgspec.convert(slotted(INTERPRETER, review(INTERPRETER, pod)), manifest.Pod)


def bound(pod: manifest.Pod, node: Node, snapshot: Snapshot | None = None) -> manifest.Pod:
    """The pod after its Binding to the node."""
    snapshot = snapshot or Snapshot([node])
    placement = place(snapshot, shaped(snapshot, INTERPRETER.request(pod), pod))
    assert placement is not None, "the node takes it"
    annotations = {**pod.annotations, **INTERPRETER.annotations(pod, placement, node, 0)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node.name))


def resolved(pod: manifest.Pod, position: int, plugin: dict[str, str] | None = None) -> dict[str, str]:
    """The variables that kubelet gives a container: a device plugin's first, and then its own."""
    env = dict(plugin or {})
    for each in pod.containers[position].env or ():
        key = each.field_path.removeprefix("metadata.annotations['").removesuffix("']")
        env[each.name] = pod.annotations.get(key, "") if each.field_path else each.value or ""
    return env
