"""A node and its cards as they are, before any vendor's plugin speaks of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from subak.local.hardware.plugins import Plugin
from subak.model.device import Device
from subak.model.manifest import Taint
from subak.model.node import Node

PROFILE = "subak.io/profile"
"""Label of every node that we make: the profile's name.  It also tells our nodes from those that others made."""

STORAGE = "123722704Ki"

_IDS = uuid.UUID("5b4f6a0e-0f6c-4c55-9a3e-2d1b7c9e4a60")


@dataclass(frozen=True, slots=True)
class Machine:
    """One node.  `plugins` are the vendors' plugins that run there.

    `device_files` are the device nodes by which a container reaches each card, by the card's id; only the cards of this
    computer have any.
    """

    name: str
    profile: str
    devices: tuple[Device, ...]
    plugins: tuple[Plugin, ...]
    cpu: str = "64"
    memory: str = "256Gi"
    storage: str = STORAGE
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    device_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def real(self) -> bool:
        """Whether the cards belong to this computer."""
        return bool(self.device_files)

    @property
    def stock(self) -> Node:
        """The node as the plugins see it when they tell what it has."""
        return Node(self.name, self.devices)


def card_id(node: str, index: int) -> str:
    """A UUID for a simulated card: the same in every run."""
    return f"GPU-{uuid.uuid5(_IDS, f'{node}/{index}')}"
