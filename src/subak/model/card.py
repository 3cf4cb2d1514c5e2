"""A card at one moment: the device and what is taken of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from subak.model.device import Device
from subak.model.placement import Charge

OWN = "container "
"""How keys of tenants begin that are containers of the very pod that is being placed."""


class CardState(msgspec.Struct, gc=False):
    """What policies look at.  It is a copy: to change it, as a trial placement does, changes no ledger.

    `used` is the number of shares given out, of which some take a slot; `tenants` holds what each pod takes, by the
    pod's key.
    """

    device: Device
    used: int
    slots_free: int
    memory_free: int
    cores_free: int
    tenants: Mapping[str, Charge]

    @classmethod
    def of(
        cls,
        device: Device,
        used: int = 0,
        memory_used: int = 0,
        cores_used: int = 0,
        tenants: Mapping[str, Charge] | None = None,
    ) -> CardState:
        """A card of which so much is taken; each share is one with a slot."""
        memory, cores = device.memory_bytes - memory_used, device.cores - cores_used
        return cls(device, used, device.slots - used, memory, cores, tenants or {})

    @property
    def slots_used(self) -> int:
        """Slots taken."""
        return self.device.slots - self.slots_free

    @property
    def memory_used(self) -> int:
        """Bytes taken."""
        return self.device.memory_bytes - self.memory_free

    @property
    def cores_used(self) -> int:
        """Cores taken."""
        return self.device.cores - self.cores_free

    def take(self, charge: Charge, sign: int = 1) -> None:
        """Take (or give back) an amount."""
        self.used += sign * charge.shares
        self.slots_free -= sign * charge.slots
        self.memory_free -= sign * charge.memory_bytes
        self.cores_free -= sign * charge.cores
