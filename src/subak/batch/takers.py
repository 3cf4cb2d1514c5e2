"""Jobs for which others may have to leave, in order, and their tasks that wait."""

from __future__ import annotations

from collections.abc import Hashable

from subak.batch.session import Session
from subak.batch.world import Job, Phase, Queue, Status, Task


def starving(session: Session, queue: Queue) -> list[Job]:
    """The jobs of a queue that have been let in, have tasks without a place, and lack some of these."""
    enqueues = "enqueue" in session.configuration.actions
    jobs = [
        job
        for job in queue.jobs.values()
        if job.counts[Status.PENDING]
        and not (enqueues and job.phase is Phase.PENDING)
        and session.invalid(job) is None
        and session.starving(job)
    ]
    return sorted(jobs, key=session.job_rank)


def waiting(session: Session, job: Job) -> list[Task]:
    """The tasks of a job that have no place, in order; not those that pause after a binding that was refused."""
    tasks = [task for task in job.with_status(Status.PENDING) if task.paused_until <= session.now]
    return sorted(tasks, key=session.task_rank)


class Refusals:
    """Jobs that nobody could make room for, so that others just like them need not try."""

    def __init__(self) -> None:
        self._kinds: set[Hashable] = set()

    def add(self, job: Job, tasks: list[Task]) -> None:
        """There is no room for these tasks."""
        self._kinds.add(_kind(job, tasks))

    def known(self, job: Job, tasks: list[Task]) -> bool:
        """Whether a job has failed with the same tasks, the same priority and the same share."""
        return _kind(job, tasks) in self._kinds


def _kind(job: Job, tasks: list[Task]) -> Hashable:
    asked = tuple((task.request, task.pod.namespace, task.role, task.priority) for task in tasks)
    return job.priority, job.min_member, job.ready_count, frozenset(job.held.items()), job.half_bound, asked
