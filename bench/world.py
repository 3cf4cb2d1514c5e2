"""A full cluster, made from a seed: nodes, the pods that run there with their records, and pods that will come.

Each node is filled separately, with the scheduler's own rules, until several pods in a row find no room there.  So a
scheduler that starts on it is where it would be after months of work, and most new pods have to wait.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import msgspec

from bench import load
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.request import Request
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot

FULL = 8
"""A node is full when so many pods in a row found no room."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A shape of pods: its vendor, an admitted pod as text, and its request."""

    vendor: str
    text: bytes
    request: Request


class World:
    """The cluster before the scheduler starts.  `devices` are Koordinator's, by the number of their node."""

    def __init__(self, nodes: int, shapes: int, seed: int = 1, pods_per_node: int | None = None) -> None:
        self._interpreter = Interpreter()
        self._chance = random.Random(seed)
        self._numbers = count()
        self.kinds = [self._kind(shape) for shape in load.shapes(shapes, seed)]
        self.nodes = [load.node(number) for number in range(nodes)]
        self.devices = {number: load.device(number) for number in range(0, nodes, 10)}
        self.running = [pod for number in range(nodes) for pod in self._fill(number, pods_per_node)]

    def arrivals(self) -> Iterator[manifest.Pod]:
        """An endless stream of pods that are not bound yet, in all shapes alike."""
        while True:
            yield self.pod(self._chance.choice(self.kinds))

    def pod(self, kind: Kind) -> manifest.Pod:
        """A new pod, decoded as by a watch, so that it shares no objects with others."""
        number = next(self._numbers)
        made = msgspec.json.decode(kind.text, type=manifest.Pod)
        metadata = msgspec.structs.replace(made.metadata, name=f"pod-{number}", uid=f"uid-{number}")
        return msgspec.structs.replace(made, metadata=metadata)

    def _kind(self, shape: load.Shape) -> Kind:
        admitted = self._interpreter.admit(load.pod("pod", shape))
        return Kind(shape.vendor, msgspec.json.encode(admitted), self._interpreter.request(admitted))

    def _fill(self, number: int, most: int | None) -> list[manifest.Pod]:
        """Pods that run on a node, with the records that the scheduler writes."""
        described, _ = self._interpreter.node(self.nodes[number], self.devices.get(number))
        snapshot, vendor = Snapshot([described]), load.VENDORS[number % 10]
        fitting = [kind for kind in self.kinds if kind.vendor == vendor]
        found: list[manifest.Pod] = []
        refused = 0
        while fitting and refused < FULL and (most is None or len(found) < most):
            kind = self._chance.choice(fitting)
            placement = place(snapshot, kind.request)
            if placement is None:
                refused += 1
                continue
            made = self.pod(kind)
            snapshot.assume(made.key, placement, kind.request.needs.resources)
            records = self._interpreter.annotations(made, placement, described, 0)
            found.append(bound(made, described.name, records))
        return found


def bound(pod: manifest.Pod, node: str, records: dict[str, str]) -> manifest.Pod:
    """The pod after it is bound."""
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **records})
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def in_phase(pod: manifest.Pod, phase: str) -> manifest.Pod:
    """The pod in another phase."""
    return msgspec.structs.replace(pod, status=manifest.PodStatus(phase=phase))
