"""Whether a node takes a pod: the last check before anything starts.

A scheduler has checked the same before, but pods may be bound by hand, by two schedulers at once, or to a node that has
shrunk since.  A pod that does not fit fails at once, with numbers.  As in real kubelets, extended resources that the
node does not have are ignored: they may belong to the whole cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from subak.dialects.kubernetes import needs, units
from subak.model import manifest
from tinykube.quantity import QuantityError

NOTHING_OWNED: frozenset[str] = frozenset()
PLAIN = ("pods", "cpu", "memory", "ephemeral-storage")
ALWAYS_LIMITED = ("pods", "cpu", "memory")


class OutOfResource(Exception):
    """The node has not enough left for the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def asked(pod: manifest.Pod) -> dict[str, int]:
    """The most that the pod takes of each resource: cpu in thousandths, others in whole units, and one pod."""
    return dict(needs(pod, NOTHING_OWNED).resources)


class Account:
    """What the pods of one node hold, against what the node has."""

    __slots__ = ("_held", "_used")

    def __init__(self) -> None:
        self._held: dict[str, dict[str, int]] = {}
        self._used: dict[str, int] = {}

    def __len__(self) -> int:
        """How many pods hold something."""
        return len(self._held)

    def take(self, uid: str, amounts: Mapping[str, int], allocatable: Mapping[str, manifest.Amount]) -> None:
        """Book a pod's amounts.  Raises OutOfResource, and books nothing, if the node has less than that left."""
        if uid in self._held:
            return
        for name in sorted(amounts, key=_order):
            capacity = _capacity(name, allocatable)
            used = self._used.get(name, 0)
            if capacity is not None and used + amounts[name] > capacity:
                raise OutOfResource(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, "
                    f"requested: {amounts[name]}, used: {used}, capacity: {capacity}",
                )
        self._held[uid] = dict(amounts)
        for name, amount in amounts.items():
            self._used[name] = self._used.get(name, 0) + amount

    def give_back(self, uid: str) -> None:
        """Release what the pod holds."""
        for name, amount in self._held.pop(uid, {}).items():
            self._used[name] -= amount


def _capacity(name: str, allocatable: Mapping[str, manifest.Amount]) -> int | None:
    """What the node has of a resource; None if it sets no limit, or one that cannot be read."""
    if name not in allocatable:
        return 0 if name in ALWAYS_LIMITED and allocatable else None
    try:
        return units(name, allocatable[name])
    except QuantityError:
        return 0


def _order(name: str) -> tuple[int, str]:
    """The order in which kubelets check: number of pods, then plain resources, then all others."""
    return PLAIN.index(name) if name in PLAIN else len(PLAIN), name
