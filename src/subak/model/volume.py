"""Kubernetes' storage objects, lean: claims, volumes, classes, and what storage drivers say of nodes.

A pod names claims, a claim is bound to a volume, and a volume may be within reach of some nodes only.  As everywhere
in `model`, only the fields that decide where a pod may run are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from subak.model.manifest import (
    Amounts,
    Disk,
    Expression,
    LabelSelector,
    Lean,
    Metadata,
    Namespaced,
    NodeSelector,
    Object,
)
from tinykube.quantity import Quantity
from tinykube.resource import Resource

CLAIMS = Resource("", "v1", "persistentvolumeclaims", kind="PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", namespaced=False, kind="PersistentVolume")
CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False, kind="StorageClass")
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", namespaced=False, kind="CSINode")
DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", namespaced=False, kind="CSIDriver")
CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", kind="CSIStorageCapacity")
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", namespaced=False, kind="VolumeAttachment")

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node for which its volume is to be provisioned."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""On a claim: both sides of the binding are written."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""On a volume or claim: the binding was not made by its user, and may be undone."""

HOSTNAME = "kubernetes.io/hostname"
"""The label by which local volumes name their node."""

_CLASS = "volume.beta.kubernetes.io/storage-class"
_WAITS = "WaitForFirstConsumer"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_STORAGE = "storage"

Terms = tuple[tuple[tuple[Expression, ...], tuple[Expression, ...]], ...]
"""Terms of a node selector, each with its lines about labels and about fields; one of the terms must hold."""


class Asked(Lean, frozen=True, gc=False, kw_only=True):
    """`spec.resources` of a claim."""

    requests: Amounts | None = None


class ClaimSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a claim."""

    access_modes: list[str] | None = None
    selector: LabelSelector | None = None
    resources: Asked | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Lean, frozen=True, gc=False, kw_only=True):
    """`status` of a claim or a volume: only the phase."""

    phase: str = ""


class Claim(Namespaced, frozen=True, gc=False, kw_only=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()

    @property
    def class_name(self) -> str:
        """The name of its class, empty for none."""
        return self.annotations.get(_CLASS, self.spec.storage_class_name or "")

    @property
    def bound(self) -> bool:
        """Whether it has its volume for good."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.annotations

    @property
    def selected_node(self) -> str | None:
        """The node for which its volume is to be provisioned, None if none is chosen."""
        return self.annotations.get(SELECTED_NODE)

    @property
    def asked(self) -> Quantity | None:
        """The size that it asks for, None if it names none."""
        amount = ((self.spec.resources and self.spec.resources.requests) or {}).get(_STORAGE)
        return None if amount is None else Quantity.parse(amount)

    @property
    def size(self) -> Quantity:
        """The same, with 0 for none."""
        return self.asked or Quantity.of(0)

    def owned_by(self, uid: str) -> bool:
        """Whether the pod with this UID is its controlling owner."""
        return any(each.controller and each.uid == uid for each in self.metadata.owner_references or ())


class ClaimReference(Lean, frozen=True, gc=False, kw_only=True):
    """The claim that a volume is for; without a UID, the first claim of that name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def means(self, claim: Claim) -> bool:
        """Whether it means this claim."""
        same_name = self.name == claim.name and self.namespace == claim.namespace
        return same_name and self.uid in ("", claim.metadata.uid)


class CsiSource(Lean, frozen=True, gc=False, kw_only=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(Lean, frozen=True, gc=False, kw_only=True):
    """Which nodes a volume is within reach of."""

    required: NodeSelector | None = None


class VolumeSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a volume, with those kinds of disk that count towards a node's limit."""

    capacity: Amounts | None = None
    access_modes: list[str] | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None
    gce_persistent_disk: Disk | None = None
    aws_elastic_block_store: Disk | None = None
    azure_disk: Disk | None = None
    cinder: Disk | None = None
    portworx_volume: Disk | None = None


class Volume(Object, frozen=True, gc=False, kw_only=True):
    """A PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()

    @property
    def class_name(self) -> str:
        """The name of its class, empty for none."""
        return self.annotations.get(_CLASS, self.spec.storage_class_name)

    @property
    def size(self) -> Quantity:
        """How much it holds."""
        return Quantity.parse((self.spec.capacity or {}).get(_STORAGE, 0))

    @property
    def terms(self) -> Terms | None:
        """The nodes that it is within reach of, None for all."""
        affinity = self.spec.node_affinity
        if affinity is None or affinity.required is None:
            return None
        terms = affinity.required.node_selector_terms
        return tuple((tuple(each.match_expressions or ()), tuple(each.match_fields or ())) for each in terms)


class TopologyLine(Lean, frozen=True, gc=False, kw_only=True):
    """A label of a node, and the values that it may have."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Lean, frozen=True, gc=False, kw_only=True):
    """All of its lines must hold; without any it selects no node."""

    match_label_expressions: tuple[TopologyLine, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a node with these labels."""
        lines = self.match_label_expressions
        return bool(lines) and all(labels.get(line.key) in line.values for line in lines)


class Class(Object, frozen=True, gc=False, kw_only=True):
    """A StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None

    @property
    def waits(self) -> bool:
        """Whether its claims are bound only when a pod needs them."""
        return self.volume_binding_mode == _WAITS

    @property
    def provisions(self) -> bool:
        """Whether it makes new volumes."""
        return self.provisioner not in ("", _NO_PROVISIONER)


class Allocatable(Lean, frozen=True, gc=False, kw_only=True):
    """How many volumes of a driver fit on a node; None for any number."""

    count: int | None = None


class NodeDriver(Lean, frozen=True, gc=False, kw_only=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: Allocatable | None = None


class CsiNodeSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a CSINode."""

    drivers: list[NodeDriver] | None = None


class CsiNode(Object, frozen=True, gc=False, kw_only=True):
    """A CSINode: what storage drivers say of the node of the same name."""

    spec: CsiNodeSpec = CsiNodeSpec()

    @property
    def limits(self) -> dict[str, int]:
        """How many volumes of each driver fit on the node; drivers without a limit are left out."""
        return {
            each.name: each.allocatable.count
            for each in self.spec.drivers or ()
            if each.allocatable is not None and each.allocatable.count is not None
        }


class DriverSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None


class Driver(Object, frozen=True, gc=False, kw_only=True):
    """A CSIDriver."""

    spec: DriverSpec = DriverSpec()


class Capacity(Namespaced, frozen=True, gc=False, kw_only=True):
    """A CSIStorageCapacity: how much a class can still provide to some nodes."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None

    @property
    def largest(self) -> int:
        """The largest volume that can be made, in bytes; -1 if that is not known."""
        amount = self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
        return -1 if amount is None else Quantity.parse(amount).ceil()


class AttachmentSource(Lean, frozen=True, gc=False, kw_only=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(Lean, frozen=True, gc=False, kw_only=True):
    """`spec` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class Attachment(Object, frozen=True, gc=False, kw_only=True):
    """A VolumeAttachment: a volume that is, or soon will be, attached to a node."""

    spec: AttachmentSpec = AttachmentSpec()


Stored = Claim | Volume | Class | CsiNode | Driver | Capacity | Attachment
"""Any of the storage objects."""

RESOURCES = (CLAIMS, VOLUMES, CLASSES, CSI_NODES, DRIVERS, CAPACITIES, ATTACHMENTS)
KINDS: dict[str, type[Stored]] = {
    CLAIMS.kind: Claim,
    VOLUMES.kind: Volume,
    CLASSES.kind: Class,
    CSI_NODES.kind: CsiNode,
    DRIVERS.kind: Driver,
    CAPACITIES.kind: Capacity,
    ATTACHMENTS.kind: Attachment,
}
"""All of them by the name of their kind."""


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """How an unbound claim gets its volume with a pod: this one, or, if none is named, one that is provisioned."""

    claim: str
    uid: str
    volume: str = ""
