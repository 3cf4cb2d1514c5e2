"""What the checks read of objects, and of what our programs say: no more than they look at."""

from __future__ import annotations

import msgspec

from subak.dialects import mark
from subak.model import manifest


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What a program of ours says of itself at `/readyz`, as far as we read it."""

    ready: bool = False
    version: str = ""
    role: str = ""
    leader: str = ""
    served: list[str] = []
    not_served: dict[str, str] = {}
    waiting_for: list[str] = []
    left_to_others: list[str] = []
    trouble: list[str] = []

    @property
    def problems(self) -> list[str]:
        """What does not work, or is still missing."""
        if self.ready or self.trouble:
            return self.trouble
        return [f"it is not ready: it waits for {', '.join(self.waiting_for) or 'its first look'}"]


class Held(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`spec` of a Lease."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease, with who holds it."""

    metadata: manifest.Metadata = manifest.Metadata()
    spec: Held = Held()


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A container, by its image."""

    image: str = ""


class PodSpec(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Where a pod runs, and what."""

    node_name: str = ""
    containers: list[Image] = []


class PodStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a pod is, and kubelet's reason for it."""

    phase: str = ""
    reason: str = ""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, as far as it tells who runs where: the ledger's pods carry neither images nor kubelet's reasons."""

    metadata: manifest.Metadata = manifest.Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeInfo(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`status.nodeInfo`: what kubelet says of itself and of its container runtime."""

    container_runtime_version: str = ""
    kubelet_version: str = ""


class NodeStatus(manifest.NodeStatus, frozen=True, kw_only=True):
    """`status` of a node, with what kubelet says of itself."""

    node_info: NodeInfo = NodeInfo()


class Node(manifest.Node, frozen=True, kw_only=True):
    """A node as it is stored."""

    status: NodeStatus = NodeStatus()


def until(lease: Lease) -> float:
    """Until when a Lease is good, in seconds since 1970; 0 if that cannot be read.  The scheduler counts alike."""
    spec = lease.spec
    lean = manifest.LeaseSpec(renew_time=spec.renew_time, lease_duration_seconds=spec.lease_duration_seconds)
    return mark.lives_until(manifest.Lease(spec=lean))
