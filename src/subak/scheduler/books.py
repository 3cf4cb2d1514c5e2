"""What every pod holds, kept correct while pods, nodes and Device objects come, change and go in any order.

A pod's booking depends only on the pod, the annotations that record its allocation, and the current description of its
node (`policy.held`).  Whenever one of them changes, the pod is booked again.  So a new core that sees all objects has
the same books, whatever the order of events.

A decided pod is booked as it will be once it is bound.  When something is released or improves, the node joins the
snapshot's `freed` and the namespace its `relieved`: waiting pods may fit there now.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import Request
from subak.model.volume import Stored
from subak.policy.decider import Decider
from subak.policy.held import held
from subak.scheduler.agents import Agents
from subak.scheduler.load import became_smaller
from subak.scheduler.record import Record, State


class Books:
    """Keeps a decider's snapshot.

    The core takes `warnings`, which are for an administrator, `overdrawn`, the nodes where bound pods may hold more
    than a card has, and `shrunk`, those whose cards are gone or have become smaller.
    """

    def __init__(self, decider: Decider) -> None:
        self.decider = decider
        self.interpreter = decider.interpreter
        self.snapshot = decider.snapshot
        self.warnings: list[str] = []
        self.volumes = decider.volumes
        self.overdrawn: dict[str, None] = {}
        self.shrunk: dict[str, None] = {}
        self._nodes: dict[str, manifest.Node] = {}
        self._devices: dict[str, manifest.Device] = {}
        self._there: dict[str, dict[str, Record]] = {}
        self._now: float | None = None
        self._doubts: list[tuple[float, str]] = []
        self._agents = Agents()

    # Nodes

    @property
    def needs_variables(self) -> bool:
        """Whether there has been a node where containers get their cards by variables of their pods."""
        return self._agents.by_variables

    def pass_time(self, now: float) -> None:
        """Describe nodes again whose agents may have died since."""
        self._now = now
        while self._doubts and self._doubts[0][0] < now:
            _, name = heapq.heappop(self._doubts)
            self._describe(name)
        for name in self._agents.pass_time(now):
            self._describe(name)

    def next_doubt_ends(self) -> float | None:
        """When to describe a node again without an event; None if no node is in doubt."""
        ends = (self._doubts[0][0] if self._doubts else None, self._agents.next_look())
        return min((each for each in ends if each is not None), default=None)

    def see_node(self, node: manifest.Node) -> None:
        """Take in a node that was added or has changed."""
        self._nodes[node.name] = node
        self._agents.see_node(node)
        self._describe(node.name)

    def lose_node(self, name: str) -> None:
        """Remove a node.  Its pods stay where they are, and count again when it comes back."""
        self._nodes.pop(name, None)
        self._agents.lose_node(name)
        for record in self._there.get(name, {}).values():
            self.snapshot.forget(record.key)
            self.shrunk[name] = None
        self.snapshot.remove(name)

    def see_device(self, device: manifest.Device) -> None:
        """Take in a Device object that was added or has changed."""
        self._devices[device.name] = device
        self._describe(device.name)

    def lose_device(self, name: str) -> None:
        """Remove a Device object."""
        if self._devices.pop(name, None) is not None:
            self._describe(name)

    def see_stored(self, object: Stored) -> None:
        """Take in a storage object that was added or has changed."""
        self.volumes.see(object)
        self.snapshot.version += 1

    def lose_stored(self, object: Stored) -> None:
        """Remove a storage object."""
        self.volumes.lose(object)
        self.snapshot.version += 1

    def see_agent(self, name: str, until: float) -> None:
        """Our agent on a node lives until then."""
        if self._agents.renewed(name, until):
            self._describe(name)

    def lose_agent(self, name: str) -> None:
        """The Lease of our agent on a node is gone."""
        if self._agents.lost(name):
            self._describe(name)

    def _describe(self, name: str) -> None:
        """Describe a node again after it or its Device object has changed, and book its pods again."""
        node = self._nodes.get(name)
        if node is None:
            return
        digest, warnings = self.interpreter.node(node, self._devices.get(name), self._now)
        death = self._agents.death(name)
        if death is not None:
            digest = replace(digest, dead=dict.fromkeys(digest.offers, death))
            warnings = [*warnings, f"node {name}: {death}; no new pods"]
        if digest.doubtful_until is not None:
            heapq.heappush(self._doubts, (digest.doubtful_until, name))
        known = self.snapshot.node(name)
        if digest == known:
            return  # most updates of a node are heartbeats
        self.warnings += warnings
        there = self._there.get(name, {})
        if known is None or known.devices != digest.devices:
            if known is not None and became_smaller(known, digest):
                self.shrunk[name] = None
            for record in there.values():
                self.snapshot.forget(record.key)
            self.snapshot.put([digest])
            for key in sorted(there):
                self._book(there[key], digest)
        else:
            self.snapshot.put([digest])
        self.snapshot.freed[name] = None

    # Pods

    def there(self, node: str) -> Mapping[str, Record]:
        """The pods that are or will be on a node, by key."""
        return self._there.get(node, {})

    def move(self, record: Record, node: str) -> None:
        """Note the node that the pod is or will be on; empty for none."""
        if record.node != node:
            self.snapshot.forget(record.key)
            if record.node:
                self._there[record.node].pop(record.key, None)
            record.node, record.digest = node, None
            if node:
                self._there.setdefault(node, {})[record.key] = record

    def book(self, record: Record) -> None:
        """Book what the pod holds, as far as its node is known."""
        node = self.snapshot.node(record.node)
        if node is not None:
            self._book(record, node)

    def assume(self, record: Record, request: Request, placement: Placement) -> None:
        """Book a decision.  Raises Overcommitted if the decision was wrong."""
        self.move(record, placement.node)
        self.decider.assume(record.key, record.pod, request, placement)
        record.digest, record.known = self.snapshot.node(placement.node), True

    def reserve(self, record: Record, request: Request, placement: Placement, now: float) -> None:
        """Book a place whose holders have still to leave: until then its cards are overcommitted on paper."""
        annotations = self.decider.written(record.pod, placement, int(now * 10**9))
        record.annotations = self.recorded(record.pod, annotations)
        self.move(record, placement.node)
        self.snapshot.restore(record.key, placement, request.needs.resources, None, record.pod)
        record.digest, record.known = self.snapshot.node(placement.node), True

    def recorded(self, pod: manifest.Pod, written: Mapping[str, str]) -> dict[str, str]:
        """The pod's record after these annotations are written."""
        merged = {**pod.annotations, **written}
        return {key: merged[key] for key in self.interpreter.recorded & merged.keys()}

    def confirm(self, record: Record) -> None:
        """If the pod is bound and its cards are known, note its node should a card carry too much."""
        if record.state is State.HELD and record.known and self.snapshot.may_overdraw(record.key):
            self.overdrawn[record.node] = None

    def means_the_same(self, record: Record) -> bool:
        """Whether the annotations that the pod carries mean the same as those that count."""
        node = self.snapshot.node(record.node)
        if node is None:
            return False
        mine, theirs = (self.interpreter.grants(each, node) for each in (self._as_recorded(record), record.pod))
        return mine == theirs

    def _book(self, record: Record, node: Node) -> None:
        holding = held(self.interpreter, self._as_recorded(record), node)
        before = self.snapshot.bookings.get(record.key)
        same = before is not None and before.placement == holding.placement and before.resources == holding.resources
        record.digest, record.known = node, holding.known
        if not same:
            self.snapshot.restore(record.key, holding.placement, holding.resources, holding.counted, record.pod)
            self.warnings += holding.warnings
        elif before is not None and before.pod is not None and not _counts_alike(before.pod, record.pod):
            self.snapshot.relabel(record.key, record.pod)
        self.confirm(record)

    def _as_recorded(self, record: Record) -> manifest.Pod:
        """The pod with the annotations that count in place of those it carries."""
        pod = record.pod
        if record.carried == record.annotations:
            return pod
        others = {key: text for key, text in pod.annotations.items() if key not in self.interpreter.recorded}
        metadata = msgspec.structs.replace(pod.metadata, annotations={**others, **record.annotations})
        return msgspec.structs.replace(pod, metadata=metadata)


def _counts_alike(one: manifest.Pod, other: manifest.Pod) -> bool:
    """Whether watchers count both versions of a pod alike."""
    deleted = [each.metadata.deletion_timestamp is not None for each in (one, other)]
    return one.labels == other.labels and deleted[0] == deleted[1]
