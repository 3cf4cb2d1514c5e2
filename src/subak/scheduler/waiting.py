"""Pods that have no place yet: those to try now, those to try later, and those that wait for a cure.

Ready pods come by priority, then by arrival.  A pod that was refused waits under its shape and the cures of its
reasons: what frees memory wakes who lacks memory, at once, and nobody else.  Of pods of one shape only the first is
tried; if it is refused again, the others would be too.  A pod whose binding failed comes back after a pause that
doubles with every failure.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from subak.model.reason import Cure
from subak.model.request import Request

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0


Group = tuple[Request, str]
"""Pods that ask for the same under the same quota: request and namespace."""


@dataclass(slots=True)
class Ticket:
    """A pod's place in the line."""

    key: str
    namespace: str
    request: Request
    priority: int
    number: int
    failures: int = 0

    @property
    def group(self) -> Group:
        """With whom the pod shares its fate."""
        return self.request, self.namespace

    @property
    def rank(self) -> tuple[int, int]:
        """The lowest comes first."""
        return (-self.priority, self.number)


@dataclass(slots=True)
class Shape:
    """Refused pods that ask for the same; `order` may still name some that have left."""

    cures: frozenset[Cure]
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
    """All tickets.  A ticket is in one place at a time; it leaves at once, what heaps still say of it is skipped."""

    def __init__(self) -> None:
        self._tickets: dict[str, Ticket] = {}
        self._ready: list[tuple[tuple[int, int], str, int]] = []
        self._paused: list[tuple[float, str, int]] = []
        self._failed: list[tuple[str, int]] = []
        self._shapes: dict[Group, Shape] = {}
        self._stamp: dict[str, int] = {}
        self._stamps = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def get(self, key: str) -> Ticket | None:
        """The pod's ticket, None if it does not stand in the line."""
        return self._tickets.get(key)

    def add(self, ticket: Ticket) -> None:
        """A pod that is to be tried now."""
        self.remove(ticket.key)
        self._tickets[ticket.key] = ticket
        self._make_ready(ticket)

    def remove(self, key: str) -> Ticket | None:
        """Take a pod out of the line, wherever it stands."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            self._stamp.pop(key, None)
            self._leave_shape(ticket)
        return ticket

    def refuse(self, ticket: Ticket, cures: frozenset[Cure]) -> None:
        """A pod that found no place: it waits for one of the cures."""
        self._tickets[ticket.key] = ticket
        self._stamp.pop(ticket.key, None)
        shape = self._shapes.setdefault(ticket.group, Shape(cures))
        shape.cures = cures
        shape.members[ticket.key] = ticket
        heapq.heappush(shape.order, (ticket.rank, ticket.key))

    def fail(self, ticket: Ticket) -> None:
        """A pod whose binding failed: it comes back after a pause, which begins with the next `pop`."""
        self._tickets[ticket.key] = ticket
        ticket.failures += 1
        self._failed.append((ticket.key, self._mark(ticket.key)))

    def cure(self, cure: Cure) -> None:
        """Something happened: the first of each shape that it may help is tried again."""
        for shape in list(self._shapes.values()):
            if cure in shape.cures:
                self._wake_first(shape)

    def wake_next(self, group: Group) -> None:
        """A pod of this group found a place: so may the next."""
        shape = self._shapes.get(group)
        if shape is not None:
            self._wake_first(shape)

    def pop(self, now: float) -> Ticket | None:
        """The next pod to try, None if there is none now."""
        for key, stamp in self._failed:
            if self._stamp.get(key) == stamp:
                until = now + min(FIRST_PAUSE * 2 ** (self._tickets[key].failures - 1), LONGEST_PAUSE)
                heapq.heappush(self._paused, (until, key, stamp))
        self._failed.clear()
        while self._paused and self._paused[0][0] <= now:
            _, key, stamp = heapq.heappop(self._paused)
            if self._stamp.get(key) == stamp:
                self._make_ready(self._tickets[key])
        while self._ready:
            _, key, stamp = heapq.heappop(self._ready)
            if self._stamp.get(key) == stamp:
                del self._stamp[key]
                return self._tickets.pop(key)
        return None

    @property
    def ready(self) -> bool:
        """Whether somebody may be tried now; the next `pop` knows for sure."""
        return bool(self._ready or self._failed)

    def next_pause_ends(self) -> float | None:
        """When a paused pod comes back."""
        while self._paused and self._stamp.get(self._paused[0][1]) != self._paused[0][2]:
            heapq.heappop(self._paused)
        return self._paused[0][0] if self._paused else None

    def _wake_first(self, shape: Shape) -> None:
        first = shape.first()
        self._leave_shape(first)
        self._make_ready(first)

    def _leave_shape(self, ticket: Ticket) -> None:
        shape = self._shapes.get(ticket.group)
        if shape is not None and shape.members.pop(ticket.key, None) is not None and not shape.members:
            del self._shapes[ticket.group]

    def _make_ready(self, ticket: Ticket) -> None:
        heapq.heappush(self._ready, (ticket.rank, ticket.key, self._mark(ticket.key)))

    def _mark(self, key: str) -> int:
        """A fresh stamp: entries of the heaps with an older one no longer count."""
        self._stamps += 1
        self._stamp[key] = self._stamps
        return self._stamps
