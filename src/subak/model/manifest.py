"""Kubernetes objects, lean: only the fields that Subak reads.

The same structs decode YAML files, API server answers and watch events.  Unknown fields are skipped, wrong types are
refused with the path of the field.  Resource amounts stay as written (a number or a text); `Quantity` reads them where
they are used, so that an error can name the resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from tinykube.quantity import Quantity
from tinykube.resource import Resource

Amount = str | int | float
Amounts = dict[str, Amount]

DEVICES = Resource("scheduling.koordinator.sh", "v1alpha1", "devices", namespaced=False, kind="Device")

DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that somebody sends away."""

PREEMPTED = "PreemptionByScheduler"
"""The reason of that condition on a pod that must go for a more important one."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


class Role(Enum):
    """When a container runs: before the others, beside them from the start, or as one of them."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Lean(msgspec.Struct, rename="camel", frozen=True, gc=False, kw_only=True):
    """What all manifests share: camelCase names, frozen, outside the garbage collector (they are trees)."""


class OwnerReference(Lean, frozen=True, gc=False, kw_only=True):
    """To whom an object belongs."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Lean, frozen=True, gc=False, kw_only=True):
    """The part of ObjectMeta that we read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that makes such objects; None if nobody does."""
        return next((each for each in self.owner_references or () if each.controller), None)


class Object(Lean, frozen=True, gc=False, kw_only=True):
    """What every Kubernetes object has."""

    metadata: Metadata = Metadata()

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations, empty when absent."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels, empty when absent."""
        return self.metadata.labels or {}


class Namespaced(Object, frozen=True, gc=False, kw_only=True):
    """An object that is in a namespace."""

    @property
    def namespace(self) -> str:
        """Namespace, `default` when absent."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`namespace/name`: what people call it, and what the ledger books pods by."""
        return f"{self.namespace}/{self.name}"


class Resources(Lean, frozen=True, gc=False, kw_only=True):
    """`resources` of a container."""

    limits: Amounts | None = None
    requests: Amounts | None = None


class FieldRef(Lean, frozen=True, gc=False, kw_only=True):
    """A field of the pod whose value a variable has."""

    field_path: str = ""


class EnvSource(Lean, frozen=True, gc=False, kw_only=True):
    """Where a variable's value comes from; of all sources only the pod's own fields matter here."""

    field_ref: FieldRef | None = None


class EnvVar(Lean, frozen=True, gc=False, kw_only=True):
    """A variable that the user set."""

    name: str
    value: str | None = None
    value_from: EnvSource | None = None

    @property
    def field_path(self) -> str:
        """The field of the pod that it has its value from; empty if from none."""
        source = self.value_from
        return source.field_ref.field_path if source is not None and source.field_ref is not None else ""


class Port(Lean, frozen=True, gc=False, kw_only=True):
    """A container's port; only a host port restricts the choice of node."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class SecurityContext(Lean, frozen=True, gc=False, kw_only=True):
    """Only whether the container is privileged."""

    privileged: bool | None = None


class Container(Lean, frozen=True, gc=False, kw_only=True):
    """One container, init containers included."""

    name: str
    resources: Resources | None = None
    env: list[EnvVar] | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None
    security_context: SecurityContext | None = None

    @property
    def limits(self) -> Amounts:
        """`resources.limits`, empty when absent."""
        return (self.resources and self.resources.limits) or {}

    @property
    def requests(self) -> Amounts:
        """`resources.requests`; a resource that has only a limit counts as requested (as the API server fills it)."""
        if self.resources is None:
            return {}
        return {**(self.resources.limits or {}), **(self.resources.requests or {})}

    @property
    def variables(self) -> dict[str, str]:
        """The variables whose values stand in the pod itself."""
        return {each.name: each.value for each in self.env or () if each.value is not None}


class Toleration(Lean, frozen=True, gc=False, kw_only=True):
    """A taint that the pod does not mind."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Expression(Lean, frozen=True, gc=False, kw_only=True):
    """One line of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the line is true of something with these labels; a line that makes no sense is not."""
        value, values = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return value is not None and value in values
            case "NotIn":
                return value is None or value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" if value is not None and len(values) == 1:
                if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(values[0])):
                    return False  # as 1_0, which int() would read
                return int(value) > int(values[0]) if self.operator == "Gt" else int(value) < int(values[0])
            case _:
                return False


class SelectorTerm(Lean, frozen=True, gc=False, kw_only=True):
    """All of its lines must hold."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Lean, frozen=True, gc=False, kw_only=True):
    """One of its terms must hold."""

    node_selector_terms: list[SelectorTerm] = []


class PreferredNodes(Lean, frozen=True, gc=False, kw_only=True):
    """Nodes that the pod would rather have."""

    weight: int = 1
    preference: SelectorTerm = SelectorTerm()


class NodeAffinity(Lean, frozen=True, gc=False, kw_only=True):
    """Which nodes a pod demands, and which it prefers."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodes] | None = None


class LabelSelector(Lean, frozen=True, gc=False, kw_only=True):
    """A choice of objects by their labels: all lines must hold.  See `model.selector`."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it chooses something with these labels; an empty one chooses everything."""
        return all(labels.get(key) == value for key, value in (self.match_labels or {}).items()) and all(
            line.holds(labels) for line in self.match_expressions or ()
        )


class PodTerm(Lean, frozen=True, gc=False, kw_only=True):
    """Pods to be near to, or away from: within nodes that have the same value of the label `topologyKey`."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPods(Lean, frozen=True, gc=False, kw_only=True):
    """Pods that the pod would rather be near to, or away from."""

    weight: int = 1
    pod_affinity_term: PodTerm = PodTerm()


class PodAffinity(Lean, frozen=True, gc=False, kw_only=True):
    """Affinity to other pods, or anti-affinity."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPods] | None = None


class Affinity(Lean, frozen=True, gc=False, kw_only=True):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Lean, frozen=True, gc=False, kw_only=True):
    """`spec.topologySpreadConstraints[]`."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class ClaimSource(Lean, frozen=True, gc=False, kw_only=True):
    """The claim behind a volume of a pod."""

    claim_name: str = ""


class Disk(Lean, frozen=True, gc=False, kw_only=True):
    """A disk that a pod or a volume names itself; its kind decides which of these names it has."""

    pd_name: str = ""
    volume_id: str = msgspec.field(default="", name="volumeID")
    disk_uri: str = msgspec.field(default="", name="diskURI")
    iqn: str = ""
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class Volume(Lean, frozen=True, gc=False, kw_only=True):
    """A volume that may tie the pod to a node."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Any = None
    gce_persistent_disk: Disk | None = None
    aws_elastic_block_store: Disk | None = None
    azure_disk: Disk | None = None
    cinder: Disk | None = None
    portworx_volume: Disk | None = None
    iscsi: Disk | None = None
    rbd: Disk | None = None


class PodSpec(Lean, frozen=True, gc=False, kw_only=True):
    """The part of a pod's spec that decides where it may run and what it gets."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    scheduling_gates: list[Any] | None = None
    resource_claims: list[Any] | None = None
    volumes: list[Volume] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_group: Any = None


class Condition(Lean, frozen=True, gc=False, kw_only=True):
    """A status condition; `since` is when it last changed, which a server may not know."""

    type: str = ""
    status: str = ""
    reason: str = ""
    since: str | None = msgspec.field(default=None, name="lastTransitionTime")


class PodStatus(Lean, frozen=True, gc=False, kw_only=True):
    """How far the pod is, since when, and the node that is kept for it."""

    phase: str = ""
    start_time: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] | None = None


class Pod(Namespaced, frozen=True, gc=False, kw_only=True):
    """A pod, as its user wrote it or as the API server returned it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        """Name, or the generateName prefix of a pod that has not been created yet."""
        return self.metadata.name or self.metadata.generate_name

    @property
    def containers(self) -> list[Container]:
        """All containers, init containers first: the order in which HAMi's device strings list them."""
        return [*(self.spec.init_containers or ()), *self.spec.containers]

    @property
    def roles(self) -> list[Role]:
        """The role of each of `containers`."""
        early = [
            Role.SIDECAR if each.restart_policy == "Always" else Role.INIT for each in self.spec.init_containers or ()
        ]
        return early + [Role.APP] * len(self.spec.containers)

    @property
    def fields(self) -> list[str]:
        """The path of each of `containers`, for error messages."""
        early = len(self.spec.init_containers or ())
        return [f"spec.initContainers[{i}]" for i in range(early)] + [
            f"spec.containers[{i}]" for i in range(len(self.spec.containers))
        ]

    @property
    def finished(self) -> bool:
        """Succeeded or failed: it holds no card any more.  A terminating pod still does."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def priority(self) -> int:
        """How important the pod is; 0 when absent."""
        return self.spec.priority or 0

    @property
    def preempted(self) -> bool:
        """Whether a scheduler has marked the pod as one that must go for a more important one."""
        mark = self.condition(DISRUPTION_TARGET)
        return mark is not None and mark.status == "True" and mark.reason == PREEMPTED

    @property
    def started(self) -> bool:
        """Whether a container runs that is no init container, or has run."""
        return self.status.phase not in ("", "Pending")

    def condition(self, type: str) -> Condition | None:
        """The condition of this type."""
        return next((each for each in self.status.conditions or () if each.type == type), None)

    def resource_names(self) -> Iterator[str]:
        """Every resource name that any container mentions, repeated as often as it is."""
        for container in self.containers:
            if container.resources is not None:
                yield from container.resources.limits or ()
                yield from container.resources.requests or ()


class Taint(Lean, frozen=True, gc=False, kw_only=True):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Lean, frozen=True, gc=False, kw_only=True):
    """Whether and whom a node admits."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(Lean, frozen=True, gc=False, kw_only=True):
    """What a node has to give."""

    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None


class Node(Object, frozen=True, gc=False, kw_only=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def capacity(self) -> Amounts:
        """Capacity, or allocatable where only that is given."""
        return self.status.capacity or self.status.allocatable or {}

    @property
    def allocatable(self) -> Amounts:
        """Allocatable, or capacity where only that is given."""
        return self.status.allocatable or self.status.capacity or {}


class Namespace(Object, frozen=True, gc=False, kw_only=True):
    """A namespace; only its labels matter."""


class DeviceTopology(Lean, frozen=True, gc=False, kw_only=True):
    """Where a Koordinator device sits."""

    node_id: int = msgspec.field(default=-1, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class DeviceFunction(Lean, frozen=True, gc=False, kw_only=True):
    """A virtual function of a Koordinator device."""

    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class FunctionGroup(Lean, frozen=True, gc=False, kw_only=True):
    """Virtual functions that a selector means together."""

    labels: dict[str, str] | None = None
    vfs: list[DeviceFunction] | None = None


class DeviceInfo(Lean, frozen=True, gc=False, kw_only=True):
    """One device of a Koordinator Device object."""

    type: str = "gpu"
    id: str = ""
    minor: int = 0
    health: bool = False
    labels: dict[str, str] | None = None
    resources: Amounts | None = None
    topology: DeviceTopology | None = None
    vf_groups: list[FunctionGroup] | None = None


class DeviceSpec(Lean, frozen=True, gc=False, kw_only=True):
    """All devices of the node."""

    devices: list[DeviceInfo] = []


class Device(Object, frozen=True, gc=False, kw_only=True):
    """Koordinator's Device object; its name is the node's."""

    spec: DeviceSpec = DeviceSpec()


class QuotaSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a ResourceQuota."""

    hard: Amounts | None = None


class ResourceQuota(Object, frozen=True, gc=False, kw_only=True):
    """A namespace's quota."""

    spec: QuotaSpec = QuotaSpec()


class LeaseSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a Lease: when its holder was last heard of, and for how long that holds."""

    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class Lease(Object, frozen=True, gc=False, kw_only=True):
    """By what somebody shows that he lives."""

    spec: LeaseSpec = LeaseSpec()


def amount(amounts: Mapping[str, Amount], name: str) -> int:
    """The whole number that `name` stands for; 0 when absent.  Raises QuantityError when it is not a whole number."""
    text = amounts.get(name)
    return 0 if text is None else Quantity.parse(text).integer()
