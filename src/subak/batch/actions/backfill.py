"""Backfill: places for tasks that ask for nothing but to run, one by one, after all others have theirs.

No queue and no share limits them; the rules of nodes and other pods hold for them as for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch.actions.allocate import look_at_kept_places, tries
from subak.batch.arguments import Arguments
from subak.batch.session import Session
from subak.batch.trial import advance
from subak.batch.world import WAITING, Job, State, Status, Task


def backfill(session: Session, arguments: Arguments) -> None:
    """Run the action."""
    look_at_kept_places(session)
    for job, tasks in order(session):
        if session.full:
            return
        left: Sequence[Task] = [
            task for task in tasks if task.status is Status.PENDING and task.paused_until <= session.now
        ]
        while left:
            left = advance(session, job, left, None).left


def order(session: Session) -> list[tuple[Job, list[Task]]]:
    """The jobs that have such tasks, by queue and job, each with its tasks; those with kept places are among them."""
    found = [(job, tasks) for job in session.jobs() if (tasks := _best_effort(session, job))]
    queues = session.world.queues
    ranked = sorted(found, key=lambda each: (session.queue_rank(queues[each[0].queue]), session.job_rank(each[0])))
    return [(job, tasks) for job, tasks in ranked if queues[job.queue].state is State.OPEN and tries(session, job)]


def _best_effort(session: Session, job: Job) -> list[Task]:
    if not job.best_effort_count:
        return []
    return sorted((task for task in job.with_status(*WAITING) if task.best_effort), key=session.task_rank)
