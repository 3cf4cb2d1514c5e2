"""Events that the core receives, and instructions that it gives."""

from __future__ import annotations

import msgspec

from subak.model import manifest
from subak.model.budget import Budget
from subak.model.volume import Assignment, Stored


class Message(msgspec.Struct, frozen=True, gc=False):
    """A value that crosses the border of the core."""


class PodSeen(Message, frozen=True, gc=False):
    """A pod was added or has changed; the same event may come twice."""

    pod: manifest.Pod


class PodGone(Message, frozen=True, gc=False):
    """A pod was removed."""

    key: str


class NodeSeen(Message, frozen=True, gc=False):
    """A node was added or has changed."""

    node: manifest.Node


class NodeGone(Message, frozen=True, gc=False):
    """A node was removed."""

    name: str


class DeviceSeen(Message, frozen=True, gc=False):
    """Koordinator's Device object of a node was added or has changed."""

    device: manifest.Device


class DeviceGone(Message, frozen=True, gc=False):
    """Koordinator's Device object of a node was removed."""

    name: str


class NamespaceSeen(Message, frozen=True, gc=False):
    """A namespace was added or has changed."""

    namespace: manifest.Namespace


class NamespaceGone(Message, frozen=True, gc=False):
    """A namespace was removed."""

    name: str


class QuotasSeen(Message, frozen=True, gc=False):
    """All quotas of a namespace, as they are now."""

    namespace: str
    quotas: tuple[manifest.ResourceQuota, ...]


class NamesChanged(Message, frozen=True, gc=False):
    """Other scheduler names are served than before: whose pods wait is to be seen anew."""


class StorageSeen(Message, frozen=True, gc=False):
    """A claim, a volume, a class or another storage object was added or has changed."""

    object: Stored


class StorageGone(Message, frozen=True, gc=False):
    """A storage object, as it was last, was removed."""

    object: Stored


class AgentSeen(Message, frozen=True, gc=False):
    """Our agent on a node has renewed its Lease, and lives until then, in seconds since 1970."""

    node: str
    until: float


class AgentGone(Message, frozen=True, gc=False):
    """The Lease of our agent on a node was removed."""

    node: str


class BindFailed(Message, frozen=True, gc=False):
    """A binding was refused, and the pod is certainly not bound by it.  Look up an uncertain outcome first."""

    key: str
    uid: str
    message: str


class BudgetSeen(Message, frozen=True, gc=False):
    """A PodDisruptionBudget was added or has changed."""

    budget: Budget


class BudgetGone(Message, frozen=True, gc=False):
    """A PodDisruptionBudget was removed."""

    key: str


class EvictFailed(Message, frozen=True, gc=False):
    """A pod could not be evicted: the server refuses, or could not be reached for long."""

    key: str
    uid: str


Event = (
    PodSeen
    | PodGone
    | NodeSeen
    | NodeGone
    | DeviceSeen
    | DeviceGone
    | NamespaceSeen
    | NamespaceGone
    | QuotasSeen
    | NamesChanged
    | AgentSeen
    | AgentGone
    | StorageSeen
    | StorageGone
    | BudgetSeen
    | BudgetGone
    | BindFailed
    | EvictFailed
)


class Bind(Message, frozen=True, gc=False):
    """Bind the pod, in one write: node, annotations and labels together, with the UID as precondition.

    `volumes` are its unbound claims, which get their volumes first.
    """

    key: str
    uid: str
    node: str
    annotations: dict[str, str]
    labels: dict[str, str] = {}
    volumes: tuple[Assignment, ...] = ()


class Report(Message, frozen=True, gc=False):
    """Report why the pod waits: an event and the condition `PodScheduled=False` with this message."""

    key: str
    uid: str
    message: str
    reasons: dict[str, int]


class Restore(Message, frozen=True, gc=False):
    """Restore the record of a bound pod: set these annotations, and remove those that are None."""

    key: str
    uid: str
    annotations: dict[str, str | None]


class Evict(Message, frozen=True, gc=False):
    """Remove a pod that has a node: mark it as a `DisruptionTarget` for this reason, write an event, delete it.

    `event` is what the event is called.  A pod that is being deleted already is not evicted again.
    """

    key: str
    uid: str
    event: str
    reason: str
    message: str


class Nominate(Message, frozen=True, gc=False):
    """Write on which node the pod waits for others to leave (`status.nominatedNodeName`); none if it does no more."""

    key: str
    uid: str
    node: str


class Warn(Message, frozen=True, gc=False):
    """Something about the cluster that an administrator should know."""

    text: str


Instruction = Bind | Report | Restore | Evict | Nominate | Warn
