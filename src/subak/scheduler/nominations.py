"""Pods that wait on a node for others to leave, and the places that are kept for them there.

A nominated pod is booked at once, on the very cards that it will get.  Until its victims are gone these cards are
overcommitted on paper: so nobody else gets what is freed.  More important pods see through it (`policy.preempt`); if
one of them takes the place, the nomination ends.  When there is room, the place is checked by all rules and the pod is
bound.

Nothing is stored: a new core finds the nomination in the pod's status, and who has to leave by their deletion and their
condition `DisruptionTarget`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from subak.model import manifest
from subak.model.placement import Placement
from subak.policy.decider import Decider
from subak.policy.preempt import Plan, Preemption, Preemptor, pinned
from subak.scheduler.record import Record
from subak.scheduler.waiting import Ticket


class Outlook(Enum):
    """What becomes of a nomination for which there is no room yet."""

    WAITS = "others still leave"
    LOST = "others have taken the place"


@dataclass(frozen=True, slots=True)
class Kept:
    """A place that is kept for a pod, and whether there is room already."""

    placement: Placement
    room: bool


class Nominations:
    """Who leaves which node, and who waits there.  It is the `Pods` of `policy.preempt`."""

    def __init__(self, decider: Decider, records: Mapping[str, Record]) -> None:
        self._decider = decider
        self._snapshot = decider.snapshot
        self._records = records
        self._leaving: dict[str, dict[str, None]] = {}
        self._nominated: dict[str, dict[str, None]] = {}
        self.preemption = Preemption(decider, self)

    def pod(self, key: str) -> manifest.Pod:
        """A booked pod as it is now."""
        return self._records[key].pod

    def leaving(self, node: str) -> Collection[str]:
        """The pods on this node that leave anyway."""
        return self._leaving.get(node, {})

    def nominated(self, node: str) -> Collection[str]:
        """The pods that wait on this node."""
        return self._nominated.get(node, {})

    def unsettled(self) -> Iterable[str]:
        """The nodes that somebody leaves, or waits on."""
        return self._leaving.keys() | self._nominated.keys()

    def waiting(self, nodes: Iterable[str]) -> list[str]:
        """The pods that wait on these nodes."""
        if not self._nominated:
            return []
        return [key for node in nodes for key in self._nominated.get(node, ())]

    def see(self, record: Record) -> bool:
        """Note whether a pod leaves its node; True if that is new."""
        if record.leaving:
            there = self._leaving.setdefault(record.node, {})
            new = record.key not in there
            there[record.key] = None
            return new
        if self._leaving:
            _discard(self._leaving, record)
        return False

    def enter(self, record: Record) -> None:
        """The pod waits on its node from now on."""
        self._nominated.setdefault(record.node, {})[record.key] = None

    def leave(self, record: Record) -> None:
        """The pod waits there no more, and does not leave it either."""
        _discard(self._nominated, record)
        _discard(self._leaving, record)

    def plan(self, ticket: Ticket) -> Plan | None:
        """A place for a pod that fits nowhere, and who has to leave for it."""
        if not ticket.preempts:
            return None
        return self.preemption.plan(_preemptor(ticket), ticket.hopes)

    def review(self, record: Record, ticket: Ticket) -> Placement | Outlook:
        """Where a nominated pod can go now: to its place, to another node, or nowhere yet."""
        mine = self._snapshot.bookings.get(record.key)
        with self._snapshot.transaction():
            self._snapshot.forget(record.key)
            if mine is not None and (placement := self._place(mine.placement, ticket)) is not None:
                return placement
            elsewhere = self._decider.decide(ticket.namespace, ticket.request, ticket.hopes)
            if isinstance(elsewhere, Placement):
                return elsewhere
            self.preemption.settle(record.node, ticket.priority)
            if mine is not None and self._place(mine.placement, ticket) is not None:
                return Outlook.WAITS
        return Outlook.LOST

    def restored(self, record: Record, ticket: Ticket) -> Kept | None:
        """The place of a pod that was nominated before we came; None if there is none to be had."""
        node, preemptor = record.pod.status.nominated_node_name, _preemptor(ticket)
        placement = self.preemption.place(node, preemptor)
        if placement is not None:
            return Kept(placement, room=True)
        with self._snapshot.transaction():
            self.preemption.settle(node, ticket.priority)
            for key in self.leaving(node) if record.batched else ():  # a queue takes from others by its share
                self._snapshot.forget(key)
            placement = self.preemption.place(node, preemptor)
        return None if placement is None else Kept(placement, room=False)

    def displaced(self, ticket: Ticket, plan: Plan) -> list[Record]:
        """The less important pods that wait on the node of the plan and have no room beside it."""
        node = plan.placement.node
        others = [self._records[key] for key in self.nominated(node)]
        lower = [each for each in others if each.pod.priority < ticket.priority]
        lost: list[Record] = []
        with self._snapshot.transaction():
            kept = {
                each.key: self._snapshot.bookings[each.key] for each in lower if each.key in self._snapshot.bookings
            }
            self.preemption.settle(node, ticket.priority)
            for victim in plan.victims:
                self._snapshot.forget(victim.key)
            self._snapshot.restore(ticket.key, plan.placement, ticket.request.needs.resources)
            for each in sorted(lower, key=lambda each: (-each.pod.priority, each.key)):
                booking = kept.get(each.key)
                assert each.ticket is not None, "a nominated pod stands in the line"
                if booking is None or self._place(booking.placement, each.ticket) is None:
                    lost.append(each)
                else:
                    self._snapshot.put_back(each.key, booking)
        return lost

    def room(self, ticket: Ticket, plan: Plan, displaced: Iterable[Record]) -> bool:
        """Whether the place of a plan is free as soon as these no longer wait for it."""
        with self._snapshot.transaction():
            for each in displaced:
                self._snapshot.forget(each.key)
            return not plan.victims and self._place(plan.placement, ticket) is not None

    def in_the_way(self, record: Record) -> list[str]:
        """The less important pods on its node that leave: those for which it waits."""
        return sorted(key for key in self.leaving(record.node) if self.pod(key).priority < record.pod.priority)

    def _place(self, placement: Placement, ticket: Ticket) -> Placement | None:
        """The same cards once more, as all rules have it now."""
        preemptor = Preemptor(ticket.namespace, pinned(ticket.request, placement), ticket.priority)
        return self.preemption.place(placement.node, preemptor)


def _preemptor(ticket: Ticket) -> Preemptor:
    return Preemptor(ticket.namespace, ticket.request, ticket.priority)


def _discard(by_node: dict[str, dict[str, None]], record: Record) -> None:
    there = by_node.get(record.node)
    if there is not None and record.key in there:
        del there[record.key]
        if not there:
            del by_node[record.node]
