"""Which volumes that are there already a pod's unbound claims get on a node.

    a volume that is meant for the claim, by its `claimRef` or by a promise; if the node does not reach it, none
    else the smallest of the claim's class that is free and large enough, with the claim's modes and labels

Claims are served by size, so that a small one does not take what only a large one needs.  Ties go by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subak.model.node import Node
from subak.model.volume import HOSTNAME, Claim
from subak.policy.volumes.promises import Promises
from subak.policy.volumes.reach import within
from subak.policy.volumes.storage import Storage
from subak.policy.volumes.supply import Ask, Supply


class Matching:
    """Finds volumes among those of a cluster that are not promised to others."""

    def __init__(self, storage: Storage, promises: Promises) -> None:
        self._storage = storage
        self._promises = promises

    def possible(self, claim: Claim) -> bool:
        """Whether any volume may be the claim's on some node; otherwise there is no need to ask for each node."""
        return self._storage.any_free(claim.class_name) or bool(self.meant_for(claim))

    def any_on(self, node: Node, ask: Ask) -> bool:
        """Whether a claim for which no volume is meant gets one on this node."""
        return self._smallest(node, ask, ()) is not None

    def on(self, node: Node, asks: Sequence[Ask]) -> dict[str, str]:
        """The volume of each claim that has one on this node, by the claim's key.  `asks` come by size."""
        found: dict[str, str] = {}
        for ask in asks:
            supply = self._find(node, ask, found.values())
            if supply is not None:
                found[ask.claim.key] = supply.name
        return found

    def _find(self, node: Node, ask: Ask, taken: Iterable[str]) -> Supply | None:
        claim = ask.claim
        for supply in self.meant_for(claim):
            if supply.name not in taken and ask.held_by(supply):
                return supply if within(supply.terms, node.labels) else None
        return self._smallest(node, ask, taken)

    def _smallest(self, node: Node, ask: Ask, taken: Iterable[str]) -> Supply | None:
        """The smallest volume that is free."""
        claim, best = ask.claim, None
        for supply in self._storage.free(claim.class_name, node.labels.get(HOSTNAME, "")):
            if (
                (best is None or (supply.size, supply.name) < (best.size, best.name))
                and ask.met_by(supply)
                and supply.name not in taken
                and within(supply.terms, node.labels)
                and not self._promises.to_another(supply.name, claim)
            ):
                best = supply
        return best

    def meant_for(self, claim: Claim) -> list[Supply]:
        """Volumes that the claim gets before all others, or not at all."""
        found = self._storage.reserved(claim)
        promised = self._storage.volumes.get(self._promises.volume(claim))
        if promised is not None and promised.spec.claim_ref is None:
            found.append(Supply.of(promised))
        return found
