"""Jobs for which others may have to leave, in order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from subak.batch.actions.allocate import tries
from subak.batch.session import Session
from subak.batch.world import Job, Status, Task


def starving(session: Session) -> dict[str, list[Job]]:
    """The jobs that were let in, have tasks without a place, and lack some of these: by queue, in their order."""
    found: dict[str, list[Job]] = {}
    for job in session.jobs():
        if job.counts[Status.PENDING] and tries(session, job) and session.starving(job):
            found.setdefault(job.queue, []).append(job)
    return {name: sorted(jobs, key=session.job_rank) for name, jobs in found.items()}


class Failures:
    """Jobs that nobody could make room for, so that others just like them need not try."""

    def __init__(self) -> None:
        self._kinds: set[Hashable] = set()

    def add(self, job: Job, tasks: Sequence[Task]) -> None:
        """There is no room for these tasks of the job."""
        self._kinds.add(_kind(job, tasks))

    def known(self, job: Job, tasks: Sequence[Task]) -> bool:
        """Whether a job has failed with the same tasks, the same priority and the same share."""
        return _kind(job, tasks) in self._kinds


def _kind(job: Job, tasks: Sequence[Task]) -> Hashable:
    asked = tuple((task.request, task.role, task.priority, task.pod.spec.preemption_policy) for task in tasks)
    has = frozenset(job.held.items()), job.ready_count, job.half_bound
    return job.queue, job.namespace, job.priority, job.min_member, frozenset(job.minimums.items()), has, asked
