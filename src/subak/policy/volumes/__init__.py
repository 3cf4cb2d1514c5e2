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

import numpy as np

from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Request
from subak.model.volume import HOSTNAME, Assignment, Claim, Class, Stored, Volume
from subak.policy import Across
from subak.policy.volumes import disks
from subak.policy.volumes.limits import Attached, Limits
from subak.policy.volumes.matching import Matching
from subak.policy.volumes.need import Need, Needs, Tie
from subak.policy.volumes.promises import Promises
from subak.policy.volumes.storage import Storage, hosts, of_claim, of_class
from subak.policy.volumes.wants import Wants, wants
from subak.snapshot.pool import Pool, Verdicts
from subak.snapshot.watcher import Change


class Volumes(Across):
    """Keeps pods off nodes on which they could not have their volumes."""

    name = "volumes"
    cures = frozenset({Change.VOLUME_CHANGED})

    def __init__(self) -> None:
        self.storage = Storage()
        self.promises = Promises()
        self.limits = Limits(self.storage)
        self._matching = Matching(self.storage, self.promises)
        self._needs = Needs(self.storage, self.promises, self._matching, self.limits.used)
        self._nodes: dict[str, Node] = {}
        self._hosts: dict[str, dict[str, None]] = {}

    def tell(self, news: dict[Hashable, None], nodes: dict[str, None]) -> None:
        """Note from now on in `news` what may help pods that wait, and in `nodes` where."""
        self.storage.news, self.storage.nodes = news, nodes

    # What is there

    def see(self, object: Stored) -> None:
        """Take in a storage object that was added or has changed."""
        self._reconsider(object)
        self.storage.see(object)
        self._reconsider(object)
        if isinstance(object, Claim) and object.bound:
            self.promises.settle(object.key)

    def lose(self, object: Stored) -> None:
        """Remove a storage object."""
        self._reconsider(object)
        self.storage.lose(object)

    def _reconsider(self, object: Stored) -> None:
        """What is attached to nodes may depend on this object."""
        match object:
            case Claim():
                self.limits.reconsider(object.key)
            case Volume():
                for claim in self.storage.claims_of(object.name):
                    self.limits.reconsider(claim)
            case Class():
                self.limits.reconsider_all()

    def node_seen(self, node: Node) -> None:
        self.node_gone(node.name)
        self._nodes[node.name] = node
        self._hosts.setdefault(node.labels.get(HOSTNAME, ""), {})[node.name] = None

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
        self.limits.come(pod.key, wanted, node)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        wanted = wants(pod)
        if wanted is None:
            return
        for each in self.promises.of(pod.key):
            volume = self.storage.volumes.get(each.volume)
            if volume is not None:
                self.storage.news[of_class(volume.class_name)] = None
        self.promises.withdraw(pod.key)
        self.limits.leave(pod.key, wanted, node)
        self.storage.news |= dict.fromkeys(map(of_claim, wanted.claims))

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
            return Verdicts.of(np.ones(pool.room, np.int32), [None, need])
        pinned, new = need.pinned, self.limits.new(wanted)
        if pinned is not None:
            others = pinned.refuse(Node(""))
            codes, texts = np.ones(pool.room, np.int32), list[Hashable | None]([None, others])
            look = self._at(pool, [pinned.node] if isinstance(pinned, Tie) else self._on_hosts(hosts(pinned.terms)))
        else:
            reached = pool.verdicts((self.name, need.reach), need.reach.refuse)
            if not need.open and not wanted.disks and not self._limited(new):
                return reached
            codes, texts = reached.codes.copy(), list(reached.texts)
            look = np.flatnonzero(reached.passes).tolist()
        code_of = {text: code for code, text in enumerate(texts)}
        for at in look:
            node = pool.nodes[at]
            refusal = (need.refuse(node) if pinned else None) or self._refuse_here(node, need, wanted, new)
            codes[at] = code_of.setdefault(refusal, len(code_of))
        return Verdicts.of(codes, list(code_of))

    def _refuse_here(self, node: Node, need: Need, wanted: Wants, new: Attached) -> NodeRefusal | None:
        """What else, besides names and labels, the node has against the pod."""
        if need.open:
            found = self._matching.on(node, need.open)
            for claim in need.open:
                if claim.key not in found and (refusal := self._needs.provision(claim).refuse(node)) is not None:
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
        for claim in (*need.open, *need.provided):
            volume = found.get(claim.key)
            yield Assignment(claim.key, claim.metadata.uid, "" if volume is None else volume.name)

    def _limited(self, new: Attached) -> bool:
        """Whether nodes need be asked for their limits."""
        return bool(new) and bool(self.storage.limits)

    def _on_hosts(self, names: Iterable[str]) -> list[str]:
        return [node for name in names for node in self._hosts.get(name, ())]

    @staticmethod
    def _at(pool: Pool, nodes: Iterable[str]) -> list[int]:
        return [at for name in nodes if (at := pool.position(name)) is not None]


def _wanted(request: Request) -> Wants:
    read: Hashable | None = request.read(Volumes.name)
    assert isinstance(read, Wants), "asked only about pods that have volumes"
    return read
