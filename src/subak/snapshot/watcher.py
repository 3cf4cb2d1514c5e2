"""Those who follow what happens in a snapshot, to keep counters that a decision can read at once.

A watcher is made when somebody first asks for it, and hears then of all nodes and pods that are there already.  Nodes
are named: a pod may be booked before its node is known.  A rollback is heard as pods that leave and come.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from subak.model import manifest
from subak.model.node import Node

if TYPE_CHECKING:
    from subak.snapshot.cluster import Snapshot


class Change(StrEnum):
    """What may change in a cluster."""

    POD_CAME = "a pod came to a node"
    POD_LEFT = "a pod left its node"
    POD_RELABELLED = "the labels of a running pod changed"
    NODE_CHANGED = "a node came, changed or went"
    NAMESPACE_CHANGED = "a namespace came, changed or went"
    VOLUME_CHANGED = "a volume came, changed or went"


class Watcher(Protocol):
    """One for each snapshot.  Its class says what it wants to hear of; by default it hears nothing."""

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        """A watcher that has seen nothing yet.  One that rests on others gets them by `snapshot.watched`."""
        return cls()

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        """The pod holds a place on this node now."""
        return

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        """The pod, with the same labels as it came, is there no more."""
        return

    def node_seen(self, node: Node) -> None:
        """A node is new or has changed."""
        return

    def node_gone(self, name: str) -> None:
        """A node is no longer there; its pods may be for some time."""
        return

    def namespace_seen(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace is new, or has these labels now."""
        return

    def namespace_gone(self, name: str) -> None:
        """A namespace is no longer there."""
        return


W = TypeVar("W", bound=Watcher)
