"""Finds out why pods wait, without holding up the others.

Pods that ask for the same share one explanation.  It is made in columns, a bounded piece per cycle, so a cycle stays
short however many pods wait; every refused pod gets its explanation.  In a large cluster something changes all the
time: so new pods get the last explanation for some seconds, and pods that have one get another when the reason has
changed, the oldest first, so many a second.  `subak why` explains the present state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from subak.model.request import Request
from subak.policy.explain import explaining, explanation
from subak.policy.tally import Tally
from subak.scheduler.waiting import Ticket
from subak.snapshot.cluster import Snapshot

PER_CYCLE = 32
"""About so many nodes are asked in one cycle (see `policy.explain.explaining`)."""

LARGE = 16
GOOD_FOR = 10.0
"""New pods get an explanation for which more than LARGE nodes were asked for so many seconds."""

PAUSE = 1.0
AGAIN_PER_SECOND = 20
"""A pod gets another explanation after a pause at the earliest, and so many pods a second do."""

Answer = tuple[str, str, dict[str, int]]
"""A pod's key, the message, and the reasons with how many nodes have them."""


@dataclass(frozen=True, slots=True)
class Known:
    """An explanation that was made of a state of the cluster at a time."""

    message: str
    reasons: dict[str, int]
    version: int
    made: float
    large: bool


@dataclass(slots=True)
class Work:
    """An explanation that is being made."""

    request: Request
    tally: Tally
    steps: Iterator[int]
    version: int
    cost: int = 0


class Explainer:
    """The pods that wait, and their explanations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._waiting: dict[Request, dict[str, None]] = {}
        self._request_of: dict[str, Request] = {}
        self._asking: dict[Request, dict[str, None]] = {}
        self._known: OrderedDict[Request, Known] = OrderedDict()
        self._ready: dict[str, Known] = {}
        self._work: Work | None = None
        self._again_at = 0.0

    def refused(self, ticket: Ticket, now: float) -> None:
        """The pod found no place."""
        key, request = ticket.key, ticket.request
        self._waiting.setdefault(request, {})[key] = None
        self._request_of[key] = request
        known = self._known.get(request)
        if known is not None and (
            known.version == self._snapshot.version or (known.large and now < known.made + GOOD_FOR)
        ):
            self._ready[key] = known
        else:
            self._asking.setdefault(request, {})[key] = None

    def forget(self, key: str) -> None:
        """The pod no longer waits."""
        request = self._request_of.pop(key, None)
        if request is None:
            return
        self._ready.pop(key, None)
        for keys in (self._waiting, self._asking):
            if request in keys and key in keys[request]:
                del keys[request][key]
                if not keys[request]:
                    del keys[request]
        if request not in self._waiting:
            self._known.pop(request, None)
            if self._work is not None and self._work.request is request:
                self._work = None

    def due(self) -> float | None:
        """When there is something to explain: 0 for now, None if not before something changes."""
        if self._ready or self._asking or self._work is not None:
            return 0.0
        oldest = next(iter(self._known.values()), None)
        if oldest is None or oldest.version == self._snapshot.version:
            return None
        return max(oldest.made + PAUSE, self._again_at)

    def answers(self, now: float) -> list[Answer]:
        """What has been found out; goes on finding out, for as long as one cycle may take."""
        ready, self._ready = self._ready, {}
        answers = [(key, known.message, known.reasons) for key, known in ready.items()]
        left = PER_CYCLE
        while left > 0 and (work := self._next_work(now)) is not None:
            cost = next(work.steps, None)
            if cost is None:
                answers += self._finished(work, now)
            else:
                work.cost += cost
                left -= cost
        return answers

    def _next_work(self, now: float) -> Work | None:
        """The explanation under way, or the next: new pods first, then those with the oldest explanation."""
        if self._work is None:
            request = next(iter(self._asking), None)
            if request is None:
                due = self.due()
                if due is None or due > now:
                    return None
                request = next(iter(self._known))
            tally = Tally()
            self._work = Work(request, tally, explaining(self._snapshot, request, tally), self._snapshot.version)
        return self._work

    def _finished(self, work: Work, now: float) -> list[Answer]:
        self._work = None
        request, why = work.request, explanation(work.tally)
        known = Known(str(why), why.reasons, work.version, now, work.cost > LARGE)
        self._known[request] = known
        self._known.move_to_end(request)
        keys: Iterable[str] | None = self._asking.pop(request, None)
        if keys is None:  # no new pods: all get it again
            keys = self._waiting[request]
            self._again_at = now + len(self._waiting[request]) / AGAIN_PER_SECOND
        return [(key, known.message, known.reasons) for key in keys]
