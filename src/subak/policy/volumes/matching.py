"""Which volumes that are there already a pod's unbound claims get on a node.

    a volume that is meant for the claim, by its `claimRef` or by a promise; if the node does not reach it, none
    else the smallest of the claim's class that is free and large enough, with the claim's modes and labels

Claims are served by size, so that a small one does not take what only a large one needs.  Ties go by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subak.model.node import Node
from subak.model.volume import HOSTNAME, Claim, Volume
from subak.policy.volumes.promises import Promises
from subak.policy.volumes.reach import within
from subak.policy.volumes.storage import AVAILABLE, Storage

FILESYSTEM = "Filesystem"


class Matching:
    """Finds volumes among those of a cluster that are not promised to others."""

    def __init__(self, storage: Storage, promises: Promises) -> None:
        self._storage = storage
        self._promises = promises

    def possible(self, claim: Claim) -> bool:
        """Whether any volume may be the claim's on some node; otherwise there is no need to ask for each node."""
        return bool(self._meant_for(claim)) or self._storage.any_free(claim.class_name)

    def on(self, node: Node, claims: Sequence[Claim]) -> dict[str, Volume]:
        """The volume of each claim that has one on this node, by the claim's key.  `claims` come by size."""
        found: dict[str, Volume] = {}
        taken: set[str] = set()
        for claim in claims:
            volume = self._find(node, claim, taken)
            if volume is not None:
                found[claim.key] = volume
                taken.add(volume.name)
        return found

    def _find(self, node: Node, claim: Claim, taken: set[str]) -> Volume | None:
        for volume in self._meant_for(claim):
            if volume.name not in taken and _may_hold(claim, volume):
                return volume if within(volume.terms, node.labels) else None
        free = self._storage.free(claim.class_name, node.labels.get(HOSTNAME, ""))
        return _smallest(
            volume
            for volume in free
            if volume.name not in taken
            and volume.status.phase == AVAILABLE
            and _may_hold(claim, volume)
            and (claim.spec.selector is None or claim.spec.selector.holds(volume.labels))
            and set(claim.spec.access_modes or ()) <= set(volume.spec.access_modes or ())
            and within(volume.terms, node.labels)
            and not self._promises.to_another(volume.name, claim)
        )

    def _meant_for(self, claim: Claim) -> list[Volume]:
        found = self._storage.reserved(claim)
        promised = self._storage.volumes.get(self._promises.volume(claim))
        if promised is not None and promised.spec.claim_ref is None:
            found.append(promised)
        return found


def _may_hold(claim: Claim, volume: Volume) -> bool:
    """Whether the volume is large enough, of the right kind, and there to stay."""
    return (
        volume.size >= claim.size
        and (claim.spec.volume_mode or FILESYSTEM) == (volume.spec.volume_mode or FILESYSTEM)
        and (claim.spec.volume_attributes_class_name or "") == (volume.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _smallest(volumes: Iterable[Volume]) -> Volume | None:
    return min(volumes, key=lambda each: (each.size, each.name), default=None)
