"""What a pod's claims need of a node, as things stand: bound ones, those to be provisioned, and those still open.

    bound                                      the node must reach the volume
    unbound, its class waits for a pod         open: a volume that is there, or a new one
      ... and a node was chosen for it         that node, and a new volume
    unbound, its class does not wait           no node: it should have been bound by now
    missing, lost, deleted, in use             no node

It is found out anew for each decision, since any event may change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.volume import Claim
from subak.policy.volumes.matching import Matching
from subak.policy.volumes.promises import Promises
from subak.policy.volumes.reach import Fixed, Provision, Reach, lines
from subak.policy.volumes.storage import ANYWHERE, Storage, hosts
from subak.policy.volumes.supply import Ask
from subak.policy.volumes.wants import Wants

ONCE_PER_POD = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class Tie:
    """A claim whose volume is provisioned for one node."""

    claim: str
    node: str

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why another node is out."""
        if node.name == self.node:
            return None
        return NodeRefusal(Reason.VOLUME_NODE_CONFLICT, f"claim {self.claim} is provisioned for node {self.node}")


@dataclass(slots=True)
class Need:
    """The claims of a pod.  `open` come by size; `provided` are to be provisioned wherever the pod goes.

    `otherwise` is what a new volume would need, for each of the open claims that finds none.
    """

    ties: list[Tie] = field(default_factory=list)
    reach: Reach = field(default_factory=Reach)
    open: list[Ask] = field(default_factory=list)
    otherwise: list[Provision] = field(default_factory=list)
    provided: list[Claim] = field(default_factory=list)

    def refuse(self, node: Node) -> NodeRefusal | None:
        """What the node's name and labels have against it."""
        refusals = (each.refuse(node) for each in self.ties)
        return next((refusal for refusal in refusals if refusal is not None), None) or self.reach.refuse(node)

    @property
    def pinned(self) -> Tie | Fixed | None:
        """What leaves only few nodes, and is asked first; None if nothing does."""
        if self.ties:
            return self.ties[0]
        first = next(iter(self.reach.fixed), None)
        return first if first is not None and _few(first) else None


class Needs:
    """Finds out what pods need.  `used` says whether a pod on some node uses the claim of a key."""

    def __init__(self, storage: Storage, promises: Promises, matching: Matching, used: Callable[[str], bool]) -> None:
        self._storage = storage
        self._promises = promises
        self._matching = matching
        self._used = used

    def of(self, wants: Wants) -> Need | NodeRefusal:
        """What the pod's claims need; a refusal if no node will do."""
        need, fixed, waiting = Need(), list[Fixed](), list[Claim]()
        for key in wants.claims:
            claim = self._storage.claims.get(key)
            refusal = self._refuse(key, claim, wants)
            if refusal is not None or claim is None:
                return refusal or _not_ready(f"claim {key} is not there")
            if claim.bound:
                volume = self._storage.volumes[claim.spec.volume_name]
                demands = Fixed.of(volume, zoned=key not in wants.own)
                fixed += [demands] if demands.picky else []
            else:
                waiting.append(claim)
        for claim in sorted(waiting, key=lambda each: each.size):
            self._enter(claim, need)
        fixed.sort(key=lambda each: not _few(each))
        provisions = dict.fromkeys(self.provision(claim) for claim in need.provided)
        need.reach = Reach(tuple(fixed), tuple(each for each in provisions if each.picky))
        return need

    def provision(self, claim: Claim) -> Provision:
        """What a new volume for the claim needs of a node."""
        found = self._storage.classes[claim.class_name]
        driver = self._storage.drivers.get(found.provisioner)
        room = None
        if claim.asked is not None and driver is not None and driver.spec.storage_capacity:
            room = tuple(
                lines(each.node_topology)
                for each in self._storage.capacities(found.name)
                if each.node_topology is not None and each.largest >= claim.asked.ceil()
            )
        asked = "" if room is None else str(claim.asked)
        return Provision(found.name, found.provisions, found.allowed_topologies or (), room, asked)

    def _enter(self, claim: Claim, need: Need) -> None:
        promised = self._promises.node(claim)
        node = claim.selected_node if promised is None else promised
        if node is not None:
            need.ties.append(Tie(claim.key, node))
        if node is not None or not self._matching.possible(claim):
            need.provided.append(claim)
        else:
            need.open.append(Ask.of(claim))
            need.otherwise.append(self.provision(claim))

    def _refuse(self, key: str, claim: Claim | None, wants: Wants) -> NodeRefusal | None:
        """Why no node will do."""
        if claim is None:
            made = ": Kubernetes makes it for the pod" if key in wants.own else ""
            return _not_ready(f"claim {key} is not there{made}")
        if claim.status.phase == "Lost":
            return _not_ready(f"claim {key} has lost its volume {claim.spec.volume_name}")
        if claim.metadata.deletion_timestamp is not None:
            return _not_ready(f"claim {key} is being deleted")
        if key in wants.own and not claim.owned_by(wants.owner):
            return _not_ready(f"claim {key} was not made for the pod, though it has the name of its volume")
        if claim.bound and claim.spec.volume_name not in self._storage.volumes:
            return _not_ready(f"volume {claim.spec.volume_name} of claim {key} is not there")
        if not claim.bound and not self._waits(claim):
            return _not_ready(f"pod has unbound immediate PersistentVolumeClaims: {key}")
        if ONCE_PER_POD in (claim.spec.access_modes or ()) and key not in wants.own and self._used(key):
            return NodeRefusal(Reason.VOLUME_IN_USE, f"claim {key} ({ONCE_PER_POD}) is in use by another pod")
        return None

    def _waits(self, claim: Claim) -> bool:
        """Whether an unbound claim is bound together with its pod."""
        found = self._storage.classes.get(claim.class_name)
        return found is not None and found.waits and not claim.spec.volume_name


def _few(fixed: Fixed) -> bool:
    """Whether a volume is bound to few hosts."""
    return ANYWHERE not in hosts(fixed.terms)


def _not_ready(text: str) -> NodeRefusal:
    return NodeRefusal(Reason.VOLUME_CLAIM_NOT_READY, text)
