"""Finding out why pods wait, without holding up those that do not.

Pods that ask for the same share one explanation.  It is made in columns, a bounded piece of it per cycle, so that
however many wait, a cycle stays short; nobody who was refused is forgotten.  In a large cluster, where something
changes all the time, an explanation is good for some seconds: `subak why` tells the very moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from subak.model.reason import Reason
from subak.model.request import Request
from subak.policy.explain import explaining, explanation
from subak.policy.tally import Tally
from subak.scheduler.waiting import Ticket
from subak.snapshot.cluster import Snapshot

PER_CYCLE = 32
"""About so many nodes are asked in one cycle (see `policy.explain.explaining`)."""

LARGE = 16
GOOD_FOR = 10.0
"""An explanation for which more than LARGE nodes had to be asked is told to others for so many seconds."""

MOST_KNOWN = 4_096
"""Explanations that are remembered."""

Answer = tuple[str, str, dict[Reason, int]]
"""A pod's key, the message, and the reasons with how many nodes have them."""


@dataclass(frozen=True, slots=True)
class Known:
    """An explanation that was made."""

    message: str
    reasons: dict[Reason, int]
    version: int
    good_until: float


class Telling:
    """Who is to be told why it waits."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._asking: dict[Request, dict[str, None]] = {}
        self._request_of: dict[str, Request] = {}
        self._known: dict[Request, Known] = {}
        self._ready: list[Answer] = []
        self._work: Iterator[int] | None = None
        self._tally = Tally()
        self._cost = 0
        self._version = 0

    @property
    def pending(self) -> bool:
        """Whether somebody has not been told yet."""
        return bool(self._asking or self._ready)

    def refused(self, ticket: Ticket, now: float) -> None:
        """The pod found no place."""
        known = self._known.get(ticket.request)
        if known is not None and (known.version == self._snapshot.version or now < known.good_until):
            self._ready.append((ticket.key, known.message, known.reasons))
            return
        self._asking.setdefault(ticket.request, {})[ticket.key] = None
        self._request_of[ticket.key] = ticket.request

    def forget(self, key: str) -> None:
        """The pod no longer waits."""
        request = self._request_of.pop(key, None)
        if request is not None:
            asking = self._asking[request]
            del asking[key]
            if not asking:
                if next(iter(self._asking)) is request:
                    self._work = None
                del self._asking[request]
        if self._ready:
            self._ready = [each for each in self._ready if each[0] != key]

    def answers(self, now: float) -> list[Answer]:
        """What has been found out; goes on finding out, for as long as one cycle may take."""
        answers, self._ready = self._ready, []
        left = PER_CYCLE
        while self._asking and left > 0:
            request = next(iter(self._asking))
            if self._work is None:
                self._tally, self._cost, self._version = Tally(), 0, self._snapshot.version
                self._work = explaining(self._snapshot, request, self._tally)
            cost = next(self._work, None)
            if cost is None:
                self._work = None
                answers += self._finished(request, now)
            else:
                self._cost += cost
                left -= cost
        return answers

    def _finished(self, request: Request, now: float) -> Iterator[Answer]:
        why = explanation(self._tally)
        good_until = now + GOOD_FOR if self._cost > LARGE else now
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        known = self._known[request] = Known(str(why), why.reasons, self._version, good_until)
        for key in self._asking.pop(request):
            del self._request_of[key]
            yield key, known.message, known.reasons
