"""A card at one moment: the device and what is taken of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from subak.model.device import Device
from subak.model.placement import Charge


@dataclass(slots=True)
class CardState:
    """What policies look at.  It is a copy: changing it, as a trial placement does, changes no ledger.

    `tenants` holds what each pod takes, by the pod's key.
    """

    device: Device
    used: int = 0
    memory_used: int = 0
    cores_used: int = 0
    tenants: Mapping[str, Charge] = field(default_factory=dict)

    @property
    def memory_free(self) -> int:
        """Bytes not yet taken."""
        return self.device.memory_bytes - self.memory_used

    @property
    def cores_free(self) -> int:
        """Cores not yet taken."""
        return self.device.cores - self.cores_used

    def add(self, charge: Charge, sign: int = 1) -> None:
        """Take (or give back) an amount."""
        self.used += sign * charge.slots
        self.memory_used += sign * charge.memory_bytes
        self.cores_used += sign * charge.cores
