"""A node and its cards as they are, and what the agents of its dialects say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import msgspec

from subak.dialects import Dialect, Published, product
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import Device
from subak.model.manifest import Metadata, NodeSpec, NodeStatus, Taint
from subak.model.mount import Mount
from subak.model.node import Node

PODS = "110"
STORAGE = "123722704Ki"


@dataclass(frozen=True, slots=True)
class Machine:
    """One node.  `speaks` are the dialects whose agents run there, `profile` says where its description is from.

    `device_files` are the device nodes by which a container reaches each card, by the card's id; only the cards of this
    computer have any.  `driver` and `driver_env` are the mounts and variables by which every container with a card gets
    the driver, where nothing else on the node brings it.
    """

    name: str
    profile: str
    devices: tuple[Device, ...]
    speaks: tuple[Dialect, ...]
    cpu: str = "64"
    memory: str = "256Gi"
    storage: str = STORAGE
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    device_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    driver: tuple[Mount, ...] = ()
    driver_env: Mapping[str, str] = field(default_factory=dict)

    @property
    def real(self) -> bool:
        """Whether the cards belong to this computer."""
        return bool(self.device_files)

    @property
    def resources(self) -> dict[str, str]:
        """What it has besides cards."""
        return {
            "cpu": self.cpu,
            "ephemeral-storage": self.storage,
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": self.memory,
            "pods": PODS,
        }

    def publish(self) -> Published:
        """What the node says of its cards, in all dialects that it speaks, and of itself."""
        stock = Node(self.name, self.devices)
        plain = Published(self.resources, self.resources)
        named = Published(labels={**product.labels(self.devices), **self.labels})
        return reduce(or_, (each.publish(stock) for each in self.speaks), plain) | named

    def digest(self, interpreter: Interpreter) -> tuple[Node, list[str]]:
        """The node as schedulers read it from what it publishes, and what they cannot read."""
        said = self.publish()
        node = manifest.Node(
            metadata=Metadata(name=self.name, labels=dict(said.labels), annotations=dict(said.annotations)),
            spec=NodeSpec(taints=list(self.taints)),
            status=NodeStatus(capacity=dict(said.capacity), allocatable=dict(said.allocatable)),
        )
        device = None if said.device is None else msgspec.convert(said.device, manifest.Device)
        return interpreter.node(node, device)
