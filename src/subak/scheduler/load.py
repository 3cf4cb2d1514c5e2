"""What several pods take of one card together, in the amounts by which `Snapshot.assume` refuses to overcommit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from subak.model.device import MIB, Device
from subak.model.node import Node
from subak.model.placement import Charge

MEMORY, CORES, SLOTS = "MiB of memory", "cores", "slots"
FUNCTION = "virtual function "
"""Before its address: each is one of a kind, whether the card lists it or not."""


def sizes(device: Device) -> dict[str, int]:
    """All amounts that a card has, by name."""
    functions = {FUNCTION + each.bus: 1 for each in device.functions}
    amounts = {MEMORY: device.memory_bytes, CORES: device.cores, SLOTS: device.slots}
    return {**amounts, **dict(device.extras), **functions}


def became_smaller(before: Node, after: Node) -> bool:
    """Whether a card is gone, or has less of anything than it had."""
    found = {(each.family, each.index): sizes(each) for each in after.devices}
    for device in before.devices:
        now = found.get((device.family, device.index), {})
        if any(now.get(name, 0) < amount for name, amount in sizes(device).items()):
            return True
    return False


class Load:
    """The sum of what pods take of a card."""

    def __init__(self, device: Device, charges: Iterable[Charge] = ()) -> None:
        self._sizes = sizes(device)
        self._taken: Counter[str] = Counter()
        for charge in charges:
            self.add(charge)

    def add(self, charge: Charge) -> None:
        """Count one more pod, whether there is room or not."""
        self._taken.update(_amounts(charge))

    def has_room(self, charge: Charge) -> bool:
        """Whether the card has all that one more pod takes; what the pod takes nothing of does not matter."""
        return all(self._taken[name] + amount <= self._size(name) for name, amount in _amounts(charge).items())

    def excess(self) -> list[str]:
        """Of what more is taken than the card has, in words."""
        return [
            f"{_printed(name, taken)} of {_printed(name, self._size(name))} {name}"
            for name, taken in self._taken.items()
            if taken > self._size(name)
        ]

    def _size(self, name: str) -> int:
        return self._sizes.get(name, int(name.startswith(FUNCTION)))


def _amounts(charge: Charge) -> dict[str, int]:
    functions = {FUNCTION + each.bus: 1 for each in charge.functions}
    amounts = {MEMORY: charge.memory_bytes, CORES: charge.cores, SLOTS: charge.slots}
    return {name: amount for name, amount in {**amounts, **charge.extras, **functions}.items() if amount}


def _printed(name: str, amount: int) -> str:
    return f"{-(-amount // MIB):,}" if name == MEMORY else f"{amount:,}"
