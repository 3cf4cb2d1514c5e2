"""What a pod's volumes are: the claims and disks that it names."""

from __future__ import annotations

from dataclasses import dataclass

from subak.model import manifest
from subak.model.manifest import Disk

INLINE = ("gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "cinder", "portworx_volume", "iscsi", "rbd")
"""Kinds of disk that a pod can name itself and that matter to the choice of node."""


@dataclass(frozen=True, slots=True)
class Wants:
    """The volumes of a pod.

    `claims` are the keys of its claims.  `own` are those of them that Kubernetes makes for the pod (generic ephemeral
    volumes): they must belong to `owner`, the pod's UID.  `disks` are inline disks, each with its kind.
    """

    claims: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    owner: str = ""
    disks: tuple[tuple[str, Disk], ...] = ()


def wants(pod: manifest.Pod) -> Wants | None:
    """What the pod's volumes are; None if they do not restrict it."""
    if not pod.spec.volumes:
        return None
    claims: dict[str, None] = {}
    own: set[str] = set()
    disks: list[tuple[str, Disk]] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims[f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"] = None
        elif volume.ephemeral is not None:
            key = f"{pod.namespace}/{pod.name}-{volume.name}"
            claims[key] = None
            own.add(key)
        else:
            disks += [(kind, disk) for kind in INLINE if (disk := getattr(volume, kind)) is not None]
    if not claims and not disks:
        return None
    return Wants(tuple(claims), frozenset(own), pod.metadata.uid if own else "", tuple(disks))
