"""A few nodes, storage objects and pods, and what the policies say of them."""

from __future__ import annotations

from typing import Any

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.volume import HOSTNAME, Assignment
from subak.policy.decider import Decider
from tests.support.volumes import Json, classes, read, with_claims

ZONE = "topology.kubernetes.io/zone"


def node(name: str, **labels: str) -> Node:
    """A node, in the zone of its first letter."""
    return Node(name, labels={HOSTNAME: name, ZONE: name[0], **labels})


def pod(name: str, *claims: str, node: str = "", volumes: list[Json] | None = None) -> manifest.Pod:
    """A pod with claims, or with volumes of any kind."""
    content = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "volumes": with_claims(*claims) if volumes is None else volumes},
    }
    return msgspec.convert(content, manifest.Pod)


class World(Decider):
    """Nodes a1, a2 and b1, the usual classes, and these objects."""

    def __init__(self, *objects: Json) -> None:
        super().__init__(Interpreter(), [node("a1"), node("a2"), node("b1")])
        self.see(*classes(), *objects)

    def see(self, *objects: Json) -> None:
        """These objects are new, or have changed."""
        for each in objects:
            self.volumes.see(read(each))

    def fits(self, *claims: str, volumes: list[Json] | None = None) -> set[str]:
        """The nodes on which a pod may go; one by one and in columns they must be the same."""
        request = self.request(pod("asked", *claims, volumes=volumes))
        told = {each.name for each in self.snapshot if self.volumes.refuse(each, request) is None}
        found = self.explain(pod("asked", *claims, volumes=volumes))
        assert set(found.fitting) == told
        return told

    def why(self, *claims: str, volumes: list[Json] | None = None) -> str:
        """What keeps a pod off nodes."""
        return str(self.explain(pod("asked", *claims, volumes=volumes))).partition(": ")[2]

    def run(self, name: str, where: str, *claims: str, volumes: list[Json] | None = None) -> None:
        """A pod runs on a node."""
        running = pod(name, *claims, node=where, volumes=volumes)
        found = self.snapshot.node(where)
        assert found is not None
        self.hold(running, found)

    def place(self, name: str, *claims: str, **more: Any) -> tuple[str, tuple[Assignment, ...]] | None:
        """Decide on a pod and book it: its node, and what its claims are promised."""
        fresh = pod(name, *claims, **more)
        request = self.request(fresh)
        placement = self.decide("default", request)
        if not isinstance(placement, Placement):
            return None
        self.assume(fresh.key, fresh, request, placement)
        return placement.node, self.volumes.promises.of(fresh.key)

    def leave(self, name: str) -> None:
        """A pod gives its place back."""
        self.snapshot.forget(f"default/{name}")
