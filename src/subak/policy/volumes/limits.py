"""How many volumes of a driver a node takes: CSINode names the limit, and every volume counts once.

    attached = volumes of pods on the node + other volumes that are attached there
    attached + new volumes of the pod <= limit, for each driver of a new volume

Most nodes are far from their limits: `near` names the others, so that only those need be asked.
A claim without a volume counts as one of its class's driver.  Disks of the clouds that Kubernetes once attached by
itself count for the drivers that took them over.
"""

from __future__ import annotations

from collections import Counter

from subak.model.manifest import Disk
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.volume import Claim
from subak.policy.volumes.storage import Storage
from subak.policy.volumes.wants import Wants

Attached = dict[tuple[str, str], str]
"""Drivers of volumes, by driver and handle."""

DRIVERS = {
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "gce_persistent_disk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "azure_disk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "portworx_volume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
"""For each kind of disk the old provisioner, and the driver that took it over."""

_TAKEN_OVER = dict(DRIVERS.values())


class Limits:
    """What is attached to nodes, remembered until something about it changes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pods: dict[str, dict[str, Wants]] = {}
        self._nodes_of: dict[str, Counter[str]] = {}
        self._known: dict[str, Attached] = {}
        self._left: dict[str, dict[str, int]] = {}
        self._stale: dict[str, None] = {}

    def come(self, pod: str, wants: Wants, node: str) -> None:
        """A pod is on the node now."""
        self._pods.setdefault(node, {})[pod] = wants
        for claim in wants.claims:
            self._nodes_of.setdefault(claim, Counter())[node] += 1
        self.look_again(node)

    def leave(self, pod: str, wants: Wants, node: str) -> None:
        """A pod is there no more."""
        if self._pods.get(node, {}).pop(pod, None) is None:
            return
        if not self._pods[node]:
            del self._pods[node]
        for claim in wants.claims:
            nodes = self._nodes_of[claim]
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes_of[claim]
        self.look_again(node)

    def pods(self, node: str) -> dict[str, Wants]:
        """The pods with volumes on a node."""
        return self._pods.get(node, {})

    def used(self, claim: str) -> bool:
        """Whether a pod on some node uses the claim."""
        return claim in self._nodes_of

    def reconsider(self, claim: str) -> None:
        """The claim, or its volume, has changed."""
        for node in self._nodes_of.get(claim, ()):
            self.look_again(node)

    def reconsider_all(self) -> None:
        """A class has changed."""
        for node in self._storage.limits:
            self.look_again(node)
        self._known.clear()

    def look_again(self, node: str) -> None:
        """Something on the node has changed."""
        self._known.pop(node, None)
        self._stale[node] = None

    def near(self, new: Attached) -> list[str]:
        """The nodes that may not take so many volumes."""
        for node in self._stale:
            self._count(node)
        self._stale.clear()
        found: dict[str, None] = {}
        for driver, count in Counter(new.values()).items():
            found |= {node: None for node, left in self._left.get(driver, {}).items() if left < count}
        return list(found)

    def _count(self, node: str) -> None:
        """Find out how many more volumes the node takes, of each driver."""
        for left in self._left.values():
            left.pop(node, None)
        limits = self._storage.limits.get(node, {})
        taken = self._taken(node) if limits else Counter[str]()
        for driver, limit in limits.items():
            self._left.setdefault(driver, {})[node] = limit - taken[driver]

    def new(self, wants: Wants) -> Attached:
        """What a pod would attach."""
        found: Attached = {}
        for key in wants.claims:
            claim = self._storage.claims.get(key)
            if claim is not None and (handle := self._handle(claim)) is not None:
                found[handle] = handle[0]
        for kind, disk in wants.disks:
            if kind in DRIVERS:
                found[DRIVERS[kind][1], _id(disk)] = DRIVERS[kind][1]
        return found

    def refuse(self, node: Node, new: Attached) -> NodeRefusal | None:
        """Why the node does not take so many volumes."""
        limits = self._storage.limits.get(node.name)
        if not limits or limits.keys().isdisjoint(new.values()):
            return None
        there = self._attached(node.name)
        more = Counter(driver for handle, driver in new.items() if handle not in there)
        if not more:
            return None
        taken = self._taken(node.name)
        for driver, count in sorted(more.items()):
            if driver in limits and taken[driver] + count > limits[driver]:
                text = f"{driver} takes {limits[driver]} volumes, {taken[driver]} attached, {count} asked"
                return NodeRefusal(Reason.VOLUME_LIMIT_REACHED, text)
        return None

    def _taken(self, node: str) -> Counter[str]:
        """How many volumes of each driver are attached to a node."""
        there = self._attached(node)
        return Counter([*there.values(), *self._others(node, there).values()])

    def _attached(self, node: str) -> Attached:
        """The volumes of the pods on a node."""
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = {}
            for wants in self.pods(node).values():
                known |= self.new(wants)
        return known

    def _others(self, node: str, there: Attached) -> Attached:
        """The volumes that are attached to the node though no pod there uses them."""
        found: Attached = {}
        for each in self._storage.attachments(node):
            volume = self._storage.volumes.get(each.spec.source.persistent_volume_name or "")
            if each.spec.attacher and volume is not None and volume.spec.csi is not None:
                handle = (each.spec.attacher, volume.spec.csi.volume_handle)
                if handle not in there:
                    found[handle] = each.spec.attacher
        return found

    def _handle(self, claim: Claim) -> tuple[str, str] | None:
        """Driver and handle of the claim's volume; None if nobody attaches it."""
        volume = self._storage.volumes.get(claim.spec.volume_name)
        if volume is None:  # not provisioned yet: one volume, whatever it will be called
            found = self._storage.classes.get(claim.class_name)
            return None if found is None else (_TAKEN_OVER.get(found.provisioner, found.provisioner), claim.key)
        if volume.spec.csi is not None:
            driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
            return (driver, handle) if driver and handle else None
        disks = ((kind, getattr(volume.spec, kind)) for kind in DRIVERS)
        return next(((DRIVERS[kind][1], _id(disk)) for kind, disk in disks if disk is not None), None)


def _id(disk: Disk) -> str:
    return disk.pd_name or disk.volume_id.rpartition("/")[2] or disk.disk_uri
