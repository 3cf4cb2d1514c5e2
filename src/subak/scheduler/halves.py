"""Gangs of which a part is bound, and that is not enough: how long they may go on so.

A gang is decided whole, but its members are bound one by one; a binding may be refused, or lost with its scheduler.
Such a gang comes before all others.  If it is not complete in time, all of its members give back what they hold, so
that two such gangs cannot wait for each other's room for ever.

Nothing is stored: a new scheduler finds a half-bound gang as it is, and gives it the same time again.
"""

from __future__ import annotations

from collections.abc import Iterator

from subak.batch import phases
from subak.batch.world import Job, Phase, Status

AGAIN = 10.0
"""Seconds after which members that could not be evicted are evicted once more."""


def phase_of(job: Job, unschedulable: bool) -> Phase:
    """How far a job is.  A part of a gang that was whole once runs on (Unknown); one that never was is half-bound."""
    found = phases.phase(job)
    if found in (Phase.RUNNING, Phase.COMPLETED):
        return phases.phase(job, unschedulable)
    on_a_node = job.count(Status.BINDING, Status.BOUND, Status.RUNNING)
    return Phase.UNKNOWN if on_a_node and job.phase not in (Phase.PENDING, Phase.INQUEUE) else found


class Halves:
    """Half-bound gangs, and when their time is over."""

    def __init__(self) -> None:
        self.timeout = 300.0
        self._since: dict[str, float] = {}
        self._again: dict[str, float] = {}

    def look(self, job: Job, now: float) -> None:
        """Note whether the job is half-bound.

        What has no object may have been whole once, before we came: then only one of which somebody waits counts.
        """
        if not job.half_bound:
            self._since.pop(job.key, None)
            if not job.counts[Status.RELEASING]:
                self._again.pop(job.key, None)
        elif job.written or job.count(Status.PENDING, Status.PIPELINED):
            self._since.setdefault(job.key, now)

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._since.pop(key, None)
        self._again.pop(key, None)

    def lasts(self, job: Job, now: float) -> float:
        """For how long the job has been half-bound."""
        return now - self._since[job.key]

    def left(self, job: Job, now: float) -> float | None:
        """How much of its time a half-bound job has left; None if it is not half-bound."""
        return self.ends(job) - now if job.key in self._since else None

    def told(self, job: Job, now: float) -> None:
        """The members of the job were told to go; those who could not be are told again."""
        self._again[job.key] = now + AGAIN

    def ends(self, job: Job) -> float:
        """When the time of a half-bound job is over."""
        over = self._since[job.key] + (self.timeout if job.timeout is None else job.timeout)
        return self._again.get(job.key, over)

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._since))
