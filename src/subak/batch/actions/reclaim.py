"""Across queues, a queue that has less than it deserves takes back what others have above their shares.

The queue that comes first helps the first of its starving jobs; then all are ranked anew, because shares have changed.
"""

from __future__ import annotations

from subak.batch.arguments import Arguments
from subak.batch.candidates import Candidates
from subak.batch.room import make_room
from subak.batch.session import Session
from subak.batch.takers import Failures, starving
from subak.batch.takings import Terms
from subak.batch.trial import waiting
from subak.batch.world import Task

EVENT = "Reclaimed"


def reclaim(session: Session, arguments: Arguments) -> None:
    """Make room for the starving jobs of queues that are not overused."""
    jobs = starving(session)
    if not jobs:
        return
    queues = [session.world.queues[name] for name in jobs]
    others = (job for queue in session.queues if queue.reclaimable for job in queue.jobs.values())
    candidates, failures = Candidates(session.world, others), Failures()
    terms = Terms(_of_another_queue, session.reclaimable, EVENT)
    while queues and not session.full:
        queue = min(queues, key=session.queue_rank)
        if session.overused(queue) or not jobs[queue.name]:
            queues.remove(queue)
            continue
        job = jobs[queue.name].pop(0)
        tasks = [task for task in waiting(session, job) if session.preemptive(queue, task)]
        if not failures.known(job, tasks) and not make_room(session, job, tasks, candidates, terms):
            failures.add(job, tasks)


def _of_another_queue(reclaimer: Task, candidate: Task) -> bool:
    return candidate.job.queue != reclaimer.job.queue
