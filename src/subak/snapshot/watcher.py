"""Those who follow what happens in a snapshot, to keep counters that a decision can read at once.

A watcher is made when somebody first asks for it, and hears then of all nodes and pods that are there already.  Nodes
are named: a pod may be booked before its node is known.  A rollback is heard as pods that leave and come.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol, TypeVar

from subak.model import manifest
from subak.model.node import Node


class Change(StrEnum):
    """What may change in a cluster.  Nobody watches namespaces yet."""

    POD_CAME = "a pod came to a node"
    POD_LEFT = "a pod left its node"
    POD_RELABELLED = "the labels of a running pod changed"
    NODE_CHANGED = "a node came, changed or went"
    NAMESPACE_CHANGED = "a namespace came, changed or went"
    VOLUME_CHANGED = "a volume came, changed or went"


class Watcher(Protocol):
    """Made without arguments, one for each snapshot."""

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        """The pod holds a place on this node now."""

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        """The pod, with the same labels as it came, is there no more."""

    def node_seen(self, node: Node) -> None:
        """A node is new or has changed."""

    def node_gone(self, name: str) -> None:
        """A node is no longer there; its pods may be for some time."""


W = TypeVar("W", bound=Watcher)
