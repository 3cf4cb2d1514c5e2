"""Pods with volumes go where their volumes are, or can be.

    reads     the claims and disks that a pod names (`wants`)
    refuse    claims that are missing, unbound, lost or in use     `need`: no node will do
              volumes and classes that do not reach the node       `reach`: by labels, remembered
              volumes that are there already, for unbound claims   `matching`
              too many volumes for a driver                        `limits`
              disks that a pod there uses                          `disks`
    promise   what a decided pod's claims will get (`promises`)

The rules are those of kube-scheduler's plugins VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits.  All
storage objects are kept here (`storage`).  Pods without volumes cost a look at their list of volumes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Self

from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Request
from subak.model.volume import HOSTNAME, Assignment, Attachment, Claim, Class, CsiNode, Stored, Volume
from subak.policy import Across
from subak.policy.volumes import disks
from subak.policy.volumes.limits import Attached, Limits
from subak.policy.volumes.matching import Matching
from subak.policy.volumes.need import Need, Needs, Tie
from subak.policy.volumes.promises import Promises
from subak.policy.volumes.reach import Reach
from subak.policy.volumes.sheet import Sheet
from subak.policy.volumes.shelves import Shelves
from subak.policy.volumes.storage import Storage, hosts, of_claim, of_class
from subak.policy.volumes.wants import Wants, wants
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Pool, Verdicts
from subak.snapshot.watcher import Change


class Volumes(Across):
    """Keeps pods off nodes on which they could not have their volumes."""

    name = "volumes"
    cures = frozenset({Change.VOLUME_CHANGED})

    def __init__(self, snapshot: Snapshot) -> None:
        self._note = snapshot.note
        self.storage = Storage(snapshot.note, lambda node: snapshot.freed.update({node: None}))
        self.promises = Promises()
        self.limits = Limits(self.storage)
        self._matching = Matching(self.storage, self.promises)
        self._needs = Needs(self.storage, self.promises, self._matching, self.limits.used)
        self._nodes: dict[str, Node] = {}
        self._hosts: dict[str, dict[str, None]] = {}
        self._shelves = Shelves(self._hosts, self._matching.any_on)

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    # What is there

    def see(self, object: Stored) -> None:
        """Take in a storage object that was added or has changed."""
        self._reconsider(object)  # by what was known of it
        self.storage.see(object)
        self._reconsider(object)
        if isinstance(object, Claim) and object.bound:
            self._touch(self.promises.about(object.key))
            self.promises.settle(object.key)

    def lose(self, object: Stored) -> None:
        """Remove a storage object."""
        self._reconsider(object)
        self.storage.lose(object)

    def _reconsider(self, object: Stored) -> None:
        """What is attached to nodes, and which volumes are free there, may depend on this object."""
        match object:
            case Claim():
                self.limits.reconsider(object.key)
            case Volume():
                for claim in self.storage.claims_of(object.name):
                    self.limits.reconsider(claim)
                for node in self.storage.attached(object.name):
                    self.limits.look_again(node)
                volume = self.storage.volumes.get(object.name, object)
                if volume.spec.claim_ref is None:  # claimed volumes stand on no shelf
                    self._shelves.touch(volume.terms)
            case Class():
                self.limits.reconsider_all()
            case CsiNode():
                self.limits.look_again(object.name)
            case Attachment():
                known = self.storage.attachment(object.name) or object
                self.limits.look_again(known.spec.node_name)

    def node_seen(self, node: Node) -> None:
        self.node_gone(node.name)
        self._nodes[node.name] = node
        self._hosts.setdefault(node.labels.get(HOSTNAME, ""), {})[node.name] = None
        self._shelves.touch_node(node.name)

    def node_gone(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            del self._hosts[node.labels.get(HOSTNAME, "")][name]

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        wanted = wants(pod)
        if wanted is None:
            return
        if not pod.spec.node_name and node in self._nodes:
            self.promises.make(pod.key, node, self._assignments(wanted, self._nodes[node]))
            self._touch(self.promises.of(pod.key))
        self.limits.come(pod.key, wanted, node)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        wanted = wants(pod)
        if wanted is None:
            return
        for volume in self._touch(self.promises.of(pod.key)):
            self._note(of_class(volume.class_name))
        self.promises.withdraw(pod.key)
        self.limits.leave(pod.key, wanted, node)
        for claim in wanted.claims:
            self._note(of_claim(claim))

    def _touch(self, promised: Iterable[Assignment]) -> list[Volume]:
        """The volumes of promises that are made or withdrawn."""
        found = [volume for each in promised if (volume := self.storage.volumes.get(each.volume)) is not None]
        for volume in found:
            self._shelves.touch(volume.terms)
        return found

    # Decisions

    def reads(self, pod: manifest.Pod) -> Wants | None:
        return wants(pod)

    def cured_by(self, request: Request) -> frozenset[str]:
        """News of the pod's claims, and of the classes that may give them volumes."""
        keys = _wanted(request).claims
        claims = [claim for key in keys if (claim := self.storage.claims.get(key)) is not None and not claim.bound]
        return self.cures | {of_claim(key) for key in keys} | {of_class(claim.class_name) for claim in claims}

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        wanted = _wanted(request)
        need = self._needs.of(wanted)
        if isinstance(need, NodeRefusal):
            return need
        return need.refuse(node) or self._refuse_here(node, need, wanted, self.limits.new(wanted))

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        wanted = _wanted(request)
        need = self._needs.of(wanted)
        if isinstance(need, NodeRefusal):
            return Sheet(pool.room, need).verdicts()
        new, pinned = self.limits.new(wanted), need.pinned
        if pinned is not None:
            sheet = Sheet(pool.room, pinned.refuse(Node("")))
            names = [pinned.node] if isinstance(pinned, Tie) else self._on_hosts(hosts(pinned.terms))
            for at in self._at(pool, names):
                node = pool.nodes[at]
                sheet.write(at, need.refuse(node) or self._refuse_here(node, need, wanted, new))
            return sheet.verdicts()
        sheet = Sheet(pool.room)
        self._add_labels(sheet, pool, need.reach)
        if simple := self._is_simple(need, wanted):
            for ask, provision in zip(need.open, need.otherwise, strict=True):
                self._add_labels(sheet, pool, Reach((), (provision,)), ~self._shelves.there(pool, ask)[: pool.room])
        passing = sheet.passing
        for at in self._at(pool, self.limits.near(new)) if simple else pool:
            if passing[at]:
                sheet.write(at, self._refuse_here(pool.nodes[at], need, wanted, new))
        return sheet.verdicts()

    def _add_labels(self, sheet: Sheet, pool: Pool, reach: Reach, where: Bools | None = None) -> None:
        """What labels say, remembered for all nodes of a pool."""
        if any(each.picky for each in reach.demands):
            known = pool.verdicts((self.name, reach), reach.judge)
            sheet.add(known.codes, [reach.tell(each) for each in known.texts], where)

    def _is_simple(self, need: Need, wanted: Wants) -> bool:
        """Whether columns say all but what is attached: at most one open claim, for which no volume is meant."""
        return not wanted.disks and (
            not need.open or (len(need.open) == 1 and not self._matching.meant_for(need.open[0].claim))
        )

    def _refuse_here(self, node: Node, need: Need, wanted: Wants, new: Attached) -> NodeRefusal | None:
        """What else, besides names and labels, the node has against the pod."""
        if need.open:
            found = self._matching.on(node, need.open)
            for ask, provision in zip(need.open, need.otherwise, strict=True):
                if ask.claim.key not in found and (refusal := provision.refuse(node)) is not None:
                    return refusal
        if wanted.disks:
            for other in self.limits.pods(node.name).values():
                disk = disks.clash(wanted.disks, other.disks)
                if disk is not None:
                    return NodeRefusal(Reason.VOLUME_IN_USE, f"disk {disks.name(disk)} is in use by a pod there")
        return self.limits.refuse(node, new)

    def _assignments(self, wanted: Wants, node: Node) -> Iterable[Assignment]:
        """How the pod's unbound claims get their volumes on this node."""
        need = self._needs.of(wanted)
        if isinstance(need, NodeRefusal):
            return
        found = self._matching.on(node, need.open)
        for claim in (*(ask.claim for ask in need.open), *need.provided):
            yield Assignment(claim.key, claim.metadata.uid, found.get(claim.key, ""))

    def _on_hosts(self, names: Iterable[str]) -> list[str]:
        return [node for name in names for node in self._hosts.get(name, ())]

    @staticmethod
    def _at(pool: Pool, nodes: Iterable[str]) -> list[int]:
        return [at for name in nodes if (at := pool.position(name)) is not None]


def _wanted(request: Request) -> Wants:
    read: Hashable | None = request.read(Volumes.name)
    assert isinstance(read, Wants), "asked only about pods that have volumes"
    return read
