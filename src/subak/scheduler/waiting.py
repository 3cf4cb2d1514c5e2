"""Pods that have no place yet: those to try now, those to try later, and those that wait until something changes.

Ready pods come by priority, then by arrival.  Pods that found no place wait in groups of those that ask for the same.
A group that was refused fits on no node, and goes on so until something is freed or changes on a node: then only groups
that may fit there (`policy.demand`) are tried again, the most important first, and of each the first pod; as soon as
one takes the place, the others are measured by what is left.  Groups that other nodes' pods keep off (`policy.Across`)
are also tried when something happens that may cure it.  Pods that may preempt are compared with what a node would have
free without less important pods.  A nominated pod (`scheduler.nominations`) is a group by itself.  A pod that exceeds
a quota waits for the namespace instead.  A pod whose binding failed comes back after a pause that doubles with every
failure.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from subak.model.request import Request
from subak.policy import registry
from subak.policy.demand import Demand
from subak.policy.levels import Levels, Relief
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Positions

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0

NODES_AT_ONCE = 16
"""Freed nodes that are looked at together."""

MOST_LOOKS = 64
"""Freed nodes that one `pop` looks at; the next goes on with the others."""

TIDY = 1_000
"""Entries of tickets that have left which do not matter."""

EVERYWHERE = ""
"""Stands for a node, where groups may fit on any."""

NOBODY = -(1 << 62)
"""Lower than any priority: whom pods may preempt that may preempt nobody."""

Name = tuple[Request, str, int, int, str]
"""What a group has in common: the request, the namespace, whose quota counts, the priority, and whom it may preempt."""


@dataclass(slots=True)
class Ticket:
    """A pod's place in the line.  `hopes` are the only nodes that are worth a try; None for all.

    `preempts` says whether less important pods may have to leave for it, `nominated` on which node it waits for them.
    `epoch` is when the request was read.
    """

    key: str
    namespace: str
    request: Request
    priority: int
    number: int
    failures: int = 0
    hopes: tuple[str, ...] | None = None
    epoch: int = 0
    preempts: bool = False
    nominated: str = ""

    @property
    def group(self) -> Name:
        """With whom the pod shares its fate."""
        return self.request, self.namespace, self.priority, self.reach, self.key if self.nominated else ""

    @property
    def reach(self) -> int:
        """Pods of a lower priority than this one may have to leave for it."""
        return self.priority if self.preempts and not self.nominated else NOBODY

    @property
    def rank(self) -> tuple[int, int]:
        """The lowest comes first."""
        return (-self.priority, self.number)


@dataclass(slots=True)
class Group:
    """Refused pods that ask for the same; `order` may still name some that have left.

    `at` is the number of its request in the demand; None while it waits for its quota.
    """

    at: int | None = None
    members: dict[str, Ticket] = field(default_factory=dict)
    order: list[tuple[tuple[int, int], str]] = field(default_factory=list)

    def first(self) -> Ticket:
        """The member whose turn it is."""
        while True:
            rank, key = self.order[0]
            ticket = self.members.get(key)
            if ticket is not None and ticket.rank == rank:
                return ticket
            heapq.heappop(self.order)


class Line:
    """All tickets.  A ticket is in one place at a time; it leaves at once, what heaps still say of it is skipped.

    `joined` are pods that were not tried, because others that ask for the same have just been refused.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.joined: list[Ticket] = []
        self._tickets: dict[str, Ticket] = {}
        self._ready: list[tuple[tuple[int, int], str, int]] = []
        self._paused: list[tuple[float, str, int]] = []
        self._failed: list[tuple[str, int]] = []
        self._stamp: dict[str, int] = {}
        self._stamps = 0
        self._groups: dict[Name, Group] = {}
        self._demand = Demand()
        self._names: dict[int, Name] = {}
        self._priorities: Column = np.zeros(self._demand.room, np.int64)
        self._numbers: Column = np.zeros(self._demand.room, np.int64)
        self._reach: Column = np.full(self._demand.room, NOBODY, np.int64)
        self._levels = snapshot.watched(Levels)
        self._relief = Relief(snapshot)
        self._over_quota: dict[str, dict[Name, None]] = {}
        self._freed: dict[str, None] = {}
        self._looked: dict[str, Bools] = {}
        self._cures: dict[int, frozenset[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def get(self, key: str) -> Ticket | None:
        """The pod's ticket, None if it does not stand in the line."""
        return self._tickets.get(key)

    def add(self, ticket: Ticket) -> None:
        """A pod that is to be tried now; at once beside those that ask for the same, if they have just been refused."""
        self.remove(ticket.key)
        self._tickets[ticket.key] = ticket
        self._make_ready(ticket)

    def remove(self, key: str) -> Ticket | None:
        """Take a pod out of the line, wherever it stands."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._stamp.pop(key, None)
            self._leave_group(ticket)
        return ticket

    def refuse(self, ticket: Ticket) -> None:
        """A pod that fits on no node: it waits until something is freed or changes."""
        group = self._join(ticket)
        if group.at is None:
            group.at = self._demand.add(ticket.request)
            self._names[group.at] = ticket.group
            if len(self._priorities) < self._demand.room:
                self._grow()
        if cures := registry.cures(self._snapshot, ticket.request):
            self._cures[group.at] = cures
        self._reach[group.at] = ticket.reach
        self._rank(group)
        for mask in self._looked.values():
            mask[group.at] = False

    def _grow(self) -> None:
        more = self._demand.room - len(self._priorities)
        self._priorities = np.append(self._priorities, np.zeros(more, np.int64))
        self._numbers = np.append(self._numbers, np.zeros(more, np.int64))
        self._reach = np.append(self._reach, np.full(more, NOBODY, np.int64))
        for node, mask in self._looked.items():
            self._looked[node] = np.append(mask, np.zeros(more, np.bool_))

    def over_quota(self, ticket: Ticket) -> None:
        """A pod that would exceed its namespace's quota: it waits until that has changed."""
        self._leave_demand(self._join(ticket))
        self._over_quota.setdefault(ticket.namespace, {})[ticket.group] = None

    def fail(self, ticket: Ticket) -> None:
        """A pod whose binding failed: it comes back after a pause, which begins with the next `pop`."""
        self.remove(ticket.key)
        self._tickets[ticket.key] = ticket
        self._failed.append((ticket.key, self._mark(ticket.key)))

    def again(self, key: str) -> None:
        """A pod that waits is to be tried once more, on all nodes."""
        ticket = self._tickets.get(key)
        if ticket is not None and key not in self._stamp:
            self._leave_group(ticket)
            self._make_ready(ticket)

    def freed(self, nodes: Iterable[str]) -> None:
        """Something was given back or has changed on these nodes."""
        if self._names:
            for node in nodes:
                self._looked.pop(node, None)
                self._freed[node] = None

    def changed(self, changes: Iterable[Hashable]) -> None:
        """This has happened somewhere: groups that it may help, wherever that is, are tried on all nodes."""
        helped = [at for at, cures in self._cures.items() if not cures.isdisjoint(changes)]
        if helped:
            mask = self._looked.setdefault(EVERYWHERE, np.zeros(self._demand.room, np.bool_))
            mask[helped] = True

    def relieved(self, namespaces: Iterable[str]) -> None:
        """The quotas of these namespaces, or what is used of them, have changed."""
        for namespace in namespaces:
            for name in self._over_quota.pop(namespace, ()):
                group = self._groups.get(name)
                if group is not None and group.at is None:
                    self._over_quota.setdefault(namespace, {})[name] = None
                    self._try_next(group)

    def pop(self, now: float) -> Ticket | None:
        """The next pod to try, None if there is none now."""
        self._end_pauses(now)
        while True:
            ready, freed = self._first_ready(), self._first_that_may_fit()
            if freed is not None and (ready is None or freed.rank < ready.rank):
                freed.hopes = self._hopes(freed)
                self._leave_group(freed)
                return self._tickets.pop(freed.key)
            if ready is None:
                return None
            heapq.heappop(self._ready)
            del self._stamp[ready.key]
            group = self._groups.get(ready.group)
            if group is None or group.at is None:
                ready.hopes = None
                return self._tickets.pop(ready.key)
            self._rank(self._join(ready))  # those that ask for the same fit nowhere, or are measured already
            self.joined.append(ready)

    def tidy(self) -> None:
        """Drop what heaps still say of tickets that have left: nobody else does while nothing is popped."""
        if len(self._ready) > 2 * len(self._tickets) + TIDY:
            self._ready = [each for each in self._ready if self._stamp.get(each[1]) == each[2]]
            heapq.heapify(self._ready)

    @property
    def ready(self) -> bool:
        """Whether somebody may be tried now; the next `pop` knows for sure."""
        return bool(self._ready or self._failed or ((self._freed or self._looked) and self._names))

    def next_pause_ends(self) -> float | None:
        """When a paused pod comes back."""
        while self._paused and self._stamp.get(self._paused[0][1]) != self._paused[0][2]:
            heapq.heappop(self._paused)
        return self._paused[0][0] if self._paused else None

    def _end_pauses(self, now: float) -> None:
        for key, stamp in self._failed:
            if self._stamp.get(key) == stamp:
                until = now + min(FIRST_PAUSE * 2 ** (self._tickets[key].failures - 1), LONGEST_PAUSE)
                heapq.heappush(self._paused, (until, key, stamp))
        self._failed.clear()
        while self._paused and self._paused[0][0] <= now:
            _, key, stamp = heapq.heappop(self._paused)
            if self._stamp.get(key) == stamp:
                self._make_ready(self._tickets[key])

    def _first_ready(self) -> Ticket | None:
        while self._ready:
            _, key, stamp = self._ready[0]
            if self._stamp.get(key) == stamp:
                return self._tickets[key]
            heapq.heappop(self._ready)
        return None

    def _first_that_may_fit(self) -> Ticket | None:
        """The first pod of the most important group that may fit where something was freed."""
        looks = 0
        while self._names and (self._freed or self._looked):
            while self._freed and len(self._looked) < NODES_AT_ONCE and looks < MOST_LOOKS:
                node = next(iter(self._freed))
                del self._freed[node]
                mask = self._may_fit(node)
                looks += 1
                if mask.any():
                    self._looked[node] = mask
            if self._looked:
                hopeful = np.flatnonzero(np.logical_or.reduce(list(self._looked.values())))
                if len(hopeful):
                    return self._groups[self._names[self._most_important(hopeful)]].first()
                self._looked.clear()
            if looks >= MOST_LOOKS:
                return None
        return None

    def _may_fit(self, node: str, among: Bools | None = None) -> Bools:
        """Which groups may fit on the node, if need be after less important pods have left."""
        mask = self._demand.may_fit(self._snapshot, node, among)
        lowest = self._levels.lowest
        if lowest is None or self._reach.max() <= lowest or self._snapshot.home(node) is None:
            return mask
        keen = (self._reach > lowest) & ~mask
        if among is not None:
            keen &= among
        for priority in set(self._reach[keen].tolist()):
            relief = self._relief.on(node, priority - 1)
            mask |= keen & (self._reach == priority) & self._demand.may_fit(self._snapshot, node, None, relief)
        return mask

    def _hopes(self, ticket: Ticket) -> tuple[str, ...] | None:
        """The nodes on which the pod may fit, None for all; those that ask for the same fit on no other."""
        at = self._groups[ticket.group].at
        nodes = tuple(node for node, mask in self._looked.items() if mask[at])
        return None if EVERYWHERE in nodes else nodes

    def _most_important(self, hopeful: Positions) -> int:
        priorities = self._priorities[hopeful]
        first = hopeful[priorities == priorities.max()]
        return int(first[self._numbers[first].argmin()])

    def placed(self, ticket: Ticket, node: str) -> None:
        """The pod got a place on this node: others measure again what is left there, and the quota may let in more."""
        hopeful = self._looked.get(node)
        if hopeful is not None:
            self._looked[node] = self._may_fit(node, hopeful)
        group = self._groups.get(ticket.group)
        if group is not None and group.at is None:
            self._try_next(group)

    def _try_next(self, group: Group) -> None:
        first = group.first()
        self._leave_group(first)
        self._make_ready(first)

    def _join(self, ticket: Ticket) -> Group:
        self._tickets[ticket.key] = ticket
        self._stamp.pop(ticket.key, None)
        group = self._groups.setdefault(ticket.group, Group())
        group.members[ticket.key] = ticket
        heapq.heappush(group.order, (ticket.rank, ticket.key))
        return group

    def _leave_group(self, ticket: Ticket) -> None:
        group = self._groups.get(ticket.group)
        if group is None or group.members.pop(ticket.key, None) is None:
            return
        if group.members:
            self._rank(group)
        else:
            self._leave_demand(group)
            del self._groups[ticket.group]

    def _leave_demand(self, group: Group) -> None:
        if group.at is not None:
            self._demand.remove(group.at)
            del self._names[group.at]
            self._cures.pop(group.at, None)
            self._reach[group.at] = NOBODY
            for mask in self._looked.values():
                mask[group.at] = False
            group.at = None

    def _rank(self, group: Group) -> None:
        """Note by which of its members a group is compared with others."""
        if group.at is not None:
            first = group.first()
            self._priorities[group.at], self._numbers[group.at] = first.priority, first.number

    def _make_ready(self, ticket: Ticket) -> None:
        heapq.heappush(self._ready, (ticket.rank, ticket.key, self._mark(ticket.key)))

    def _mark(self, key: str) -> int:
        """A fresh stamp: entries of the heaps with an older one no longer count."""
        self._stamps += 1
        self._stamp[key] = self._stamps
        return self._stamps
