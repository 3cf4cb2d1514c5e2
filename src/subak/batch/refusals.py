"""What is known to fit nowhere, so that nobody tries it again before something has changed.

    request   no node takes it: all tasks that ask for the same are refused
    shape     each task of a gang may fit alone, but not enough of them together: so for all gangs of the same requests
    job       it has been tried, and nothing of it has changed since
    kept      places are kept for it that others have not left yet

A shape or job is refused no longer as soon as one of its requests may fit somewhere.  So who keeps this between
sessions says no more than which requests these are (`discard`), when something was freed or has changed, or a pod
begins to leave.  Refusals by filters that look at other pods end besides when a session binds somebody (`moved`).  The
order of a job's tasks, which takes as long to find as all the rest, is remembered here too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from subak.batch.world import Job, Task
from subak.model.request import Request

MOST = 10_000
"""So much is remembered."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How far the trial of a job came.

    So many of its tasks had places together, so many are known to have none.  `first` is the position of the first of
    these among the waiting tasks in their order, -1 if there is none, and `why` is what stood against it.
    """

    fitting: int = 0
    missing: int = 0
    first: int = -1
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """When something was refused, and of which requests it is made; `curable` if a pod that comes may help."""

    tick: int
    requests: tuple[Request, ...]
    curable: bool
    shortfall: Shortfall


class Refusals:
    """Requests, shapes of gangs, jobs, and kept places."""

    def __init__(self) -> None:
        self._tick = 0
        self._moved = 0
        self._news: dict[Request, int] = {}
        self._requests: dict[Request, str] = {}
        self._shapes: dict[Hashable, _Refusal] = {}
        self._jobs: dict[str, tuple[int, int, Mapping[str, int], _Refusal]] = {}
        self._kept: dict[str, tuple[int, Hashable, _Refusal]] = {}
        self._orders: dict[str, tuple[int, Sequence[Task]]] = {}

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def clear(self) -> None:
        """Everything may fit again."""
        self._news.clear()
        self._requests.clear()
        self._shapes.clear()
        self._jobs.clear()
        self._kept.clear()
        self._orders.clear()

    def discard(self, request: Request) -> None:
        """The request may fit somewhere."""
        self._tick += 1
        self._news[request] = self._tick
        self._requests.pop(request, None)

    def difference_update(self, requests: Iterable[Request]) -> None:
        """All of these may."""
        for request in requests:
            self.discard(request)

    def moved(self) -> None:
        """Somebody got a place: whoever is kept off by other pods may be welcome now."""
        self._tick += 1
        self._moved = self._tick

    def refuse(self, request: Request, why: str) -> None:
        """The request fits on no node, nor will it once those have left who leave, whichever pods come."""
        self._requests[request] = why

    def why(self, request: Request) -> str:
        """What was said to a refused request; empty if nobody asked."""
        return self._requests[request]

    def refuse_shape(self, shape: Hashable, requests: Iterable[Request], shortfall: Shortfall, curable: bool) -> None:
        """No job of this shape gets enough places."""
        if len(self._shapes) + len(self._news) > MOST or len(self._orders) > MOST:
            self.clear()
        self._shapes[shape] = _Refusal(self._tick, tuple(requests), curable, shortfall)

    def shape(self, shape: Hashable) -> Shortfall | None:
        """How far jobs of this shape came; None if they are worth a trial."""
        known = self._shapes.get(shape)
        return known.shortfall if known is not None and self._holds(known) else None

    def refuse_job(self, job: Job, requests: Iterable[Request], shortfall: Shortfall, curable: bool) -> None:
        """The job as it is now, of which these requests wait, gets no further."""
        refusal = _Refusal(self._tick, tuple(requests), curable, shortfall)
        self._jobs[job.key] = job.version, job.min_member, job.min_roles, refusal

    def job(self, job: Job) -> Shortfall | None:
        """How far the job came; None if it is worth a trial."""
        known = self._jobs.get(job.key)
        if known is None or known[:3] != (job.version, job.min_member, job.min_roles) or not self._holds(known[3]):
            return None
        return known[3].shortfall

    def keep(self, job: Job, requests: Iterable[Request], around: Hashable) -> None:
        """The places that are kept for a job are not free as long as everything around them is like this."""
        self._kept[job.key] = job.version, around, _Refusal(self._tick, tuple(requests), False, Shortfall())

    def keeps(self, job: Job, around: Hashable) -> bool:
        """Whether that is so."""
        known = self._kept.get(job.key)
        return known is not None and known[:2] == (job.version, around) and self._holds(known[2])

    def order(self, job: Job, sort: Callable[[], Sequence[Task]]) -> Sequence[Task]:
        """The tasks of a job in their order, sorted anew when any of them has changed."""
        known = self._orders.get(job.key)
        if known is None or known[0] != job.version:
            known = self._orders[job.key] = job.version, sort()
        return known[1]

    def _holds(self, refusal: _Refusal) -> bool:
        if refusal.curable and refusal.tick < self._moved:
            return False
        news = self._news
        return not news or all(news.get(request, 0) <= refusal.tick for request in refusal.requests)
