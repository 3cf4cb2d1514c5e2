"""Whether a node takes a pod: the last check before anything starts.

A scheduler has checked the same before, but pods may be bound by hand, by two schedulers at once, or to a node that has
changed since.  A pod that does not fit fails at once, with the reasons and words of real kubelets.  As there, extended
resources that the node does not have are ignored: they may belong to the whole cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from subak.dialects.kubernetes import needs, units
from subak.model import manifest
from subak.model.node import Node
from subak.model.request import Needs
from subak.policy.node import refuse_labels, tolerated
from subak.policy.ports import ALL, Opened
from tinykube.quantity import QuantityError

NOTHING_OWNED: frozenset[str] = frozenset()
PLAIN = ("pods", "cpu", "memory", "ephemeral-storage")
ALWAYS_LIMITED = ("pods", "cpu", "memory")

AFFINITY = "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
PORTS = "NodePorts", "node(s) didn't have free ports for the requested pod ports"
TAINTS = "TaintToleration", "node(s) had taints that the pod didn't tolerate"


class Rejected(Exception):
    """The node does not take the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class OutOfResource(Rejected):
    """The node has not enough left for the pod."""


def asked(pod: manifest.Pod) -> Needs:
    """What the pod asks of a node.  Of resources the most that it takes: cpu in thousandths, and one pod."""
    return needs(pod, NOTHING_OWNED)


def check(wanted: Needs, node: manifest.Node) -> None:
    """Raise Rejected if the pod selects other nodes, or the node drives it out."""
    if refuse_labels(Node(node.name, labels=node.labels), wanted) is not None:
        raise Rejected(*_failed(AFFINITY))
    # Only a scheduler heeds the other effects.
    if any(each.effect == "NoExecute" and not tolerated(each, wanted) for each in node.spec.taints or ()):
        raise Rejected(*_failed(TAINTS))


def _failed(predicate: tuple[str, str]) -> tuple[str, str]:
    name, words = predicate
    return name, f"Predicate {name} failed: {words}"


class Account:
    """What the pods of one node hold, against what the node has."""

    __slots__ = ("_held", "_ports", "_used")

    def __init__(self) -> None:
        self._held: dict[str, dict[str, int]] = {}
        self._ports: dict[str, frozenset[Opened]] = {}
        self._used: dict[str, int] = {}

    def __len__(self) -> int:
        """How many pods hold something."""
        return len(self._held)

    def take(
        self,
        uid: str,
        amounts: Iterable[tuple[str, int]],
        allocatable: Mapping[str, manifest.Amount],
        ports: Iterable[Opened] = (),
    ) -> None:
        """Book a pod's amounts and host ports.  Raises OutOfResource, and books nothing, if they are not free."""
        if uid in self._held:
            return
        wanted, opened = dict(amounts), frozenset(ports)
        for name in sorted(wanted, key=_order):
            capacity = _capacity(name, allocatable)
            used = self._used.get(name, 0)
            if capacity is not None and used + wanted[name] > capacity:
                raise OutOfResource(
                    f"OutOf{name}",
                    f"Node didn't have enough resource: {name}, "
                    f"requested: {wanted[name]}, used: {used}, capacity: {capacity}",
                )
        if any(_clash(one, other) for held in self._ports.values() for other in held for one in opened):
            raise OutOfResource(*_failed(PORTS))
        self._held[uid] = wanted
        if opened:
            self._ports[uid] = opened
        for name, amount in wanted.items():
            self._used[name] = self._used.get(name, 0) + amount

    def give_back(self, uid: str) -> None:
        """Release what the pod holds."""
        self._ports.pop(uid, None)
        for name, amount in self._held.pop(uid, {}).items():
            self._used[name] -= amount


def _clash(one: Opened, other: Opened) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or ALL in (one[2], other[2]))


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
