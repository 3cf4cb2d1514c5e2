"""Within a queue, jobs take room from less important ones, and tasks from less important ones of their own job.

Jobs that starve come in order.  A gang gets room for all tasks that it lacks, or nobody leaves for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch.arguments import Arguments
from subak.batch.candidates import Candidates
from subak.batch.room import make_room
from subak.batch.session import Session
from subak.batch.takers import Failures, starving
from subak.batch.takings import Terms
from subak.batch.trial import waiting
from subak.batch.world import Job, Queue, Task

EVENT = "Preempted"


def preempt(session: Session, arguments: Arguments) -> None:
    """Make room for the starving jobs of each queue."""
    jobs = starving(session)
    for queue in sorted((session.world.queues[name] for name in jobs), key=session.queue_rank):
        _within(session, queue, jobs[queue.name])


def _within(session: Session, queue: Queue, jobs: Sequence[Job]) -> None:
    candidates, failures = Candidates(session.world, queue.jobs.values()), Failures()
    from_others = Terms(_of_another_job, session.preemptable, EVENT)
    for job in jobs:
        if session.full:
            return
        tasks = waiting(session, job)
        if not failures.known(job, tasks) and not make_room(session, job, tasks, candidates, from_others):
            failures.add(job, tasks)
    for job in jobs:
        _within_job(session, job)


def _within_job(session: Session, job: Job) -> None:
    candidates = Candidates(session.world, [job])
    if candidates.tasks:
        for task in waiting(session, job):
            if not make_room(session, job, [task], candidates, Terms(_may_ask, session.preemptable, EVENT)):
                break


def _of_another_job(preemptor: Task, candidate: Task) -> bool:
    return candidate.job is not preemptor.job and _may_ask(preemptor, candidate)


def _may_ask(preemptor: Task, candidate: Task) -> bool:
    """A task that asks for nothing takes nothing from those who do."""
    return candidate.best_effort or not preemptor.best_effort
