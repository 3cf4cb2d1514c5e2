"""Events that the core receives, and instructions that it gives."""

from __future__ import annotations

import msgspec

from subak.batch.configuration import Configuration
from subak.model import manifest
from subak.model.budget import Budget
from subak.model.group import Group, PriorityClass, Queue
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


class GroupSeen(Message, frozen=True, gc=False):
    """A group of pods was added or has changed."""

    group: Group


class GroupGone(Message, frozen=True, gc=False):
    """A group of pods was removed."""

    words: str
    key: str


class QueueSeen(Message, frozen=True, gc=False):
    """A queue was added or has changed."""

    queue: Queue


class QueueGone(Message, frozen=True, gc=False):
    """A queue was removed."""

    name: str


class PriorityClassSeen(Message, frozen=True, gc=False):
    """A priority class was added or has changed."""

    priority_class: PriorityClass


class PriorityClassGone(Message, frozen=True, gc=False):
    """A priority class was removed."""

    name: str


class OwnerSeen(Message, frozen=True, gc=False):
    """What the owner of pods says of its group: at least so many start together."""

    uid: str
    min_member: int


class Configured(Message, frozen=True, gc=False):
    """This scheduler configuration is in force from now on; `group_timeout` are seconds, for groups that say none."""

    configuration: Configuration
    group_timeout: float = 300.0


class GroupsMade(Message, frozen=True, gc=False):
    """Whether Volcano's own controllers give pods their groups, and queues their states."""

    by_volcano: bool


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
    | GroupSeen
    | GroupGone
    | QueueSeen
    | QueueGone
    | PriorityClassSeen
    | PriorityClassGone
    | OwnerSeen
    | Configured
    | GroupsMade
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


class Note(msgspec.Struct, frozen=True, gc=False):
    """A condition of a group: what, whether, why."""

    type: str
    status: str
    reason: str
    message: str


class ShowGroup(Message, frozen=True, gc=False):
    """Write how far a group is: the phase and what its object's status has besides."""

    words: str
    key: str
    uid: str
    phase: str
    running: int
    succeeded: int
    failed: int
    condition: Note | None = None


class ShowQueue(Message, frozen=True, gc=False):
    """Write how a queue stands: how many groups are in each phase, and what it holds, in the words of its users."""

    name: str
    state: str
    phases: dict[str, int]
    allocated: dict[str, str]


class AskOwner(Message, frozen=True, gc=False):
    """Look up what the owner of a pod says of its group; `OwnerSeen` is the answer."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str


class MakeGroup(Message, frozen=True, gc=False):
    """Create Volcano's PodGroup for the pods of an owner, so that people see how far they are."""

    namespace: str
    owner: AskOwner
    min_member: int
    queue: str
    priority_class: str


class Warn(Message, frozen=True, gc=False):
    """Something about the cluster that an administrator should know."""

    text: str


Instruction = Bind | Report | Restore | Evict | Nominate | Warn | ShowGroup | ShowQueue | AskOwner | MakeGroup
