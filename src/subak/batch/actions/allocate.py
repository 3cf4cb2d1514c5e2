"""Allocate: give jobs their places, queue by queue and job by job, so that queues share while jobs are decided whole.

    kept places ── half-bound jobs ── then in turns: the first queue, its first job, as many tasks as make it ready

After each such step the queue and the job stand where their shares put them then.  Members that ask for nothing get
places here if the gang cannot do without them; others are left to backfill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from subak.batch.arguments import Arguments
from subak.batch.session import Ranks, Session
from subak.batch.trial import advance, review, waiting
from subak.batch.world import Job, Phase, Queue, Status, Task

ENQUEUE = "enqueue"
"""The action that lets jobs in; without it every job is in."""


def allocate(session: Session, arguments: Arguments) -> None:
    """Run the action."""
    look_at_kept_places(session)
    jobs = [job for job in session.jobs() if _may_try(session, job)]
    for job in sorted((job for job in jobs if job.half_bound), key=session.job_rank):
        _complete(session, job)
    _take_turns(session, [job for job in jobs if not job.half_bound])


def look_at_kept_places(session: Session) -> None:
    """Before all others: those for whom places are kept, some of which may be free now."""
    kept = [job for job in session.jobs() if job.counts[Status.PIPELINED]]
    for job in sorted(kept, key=session.job_rank):
        review(session, job)


def tries(session: Session, job: Job) -> bool:
    """Whether a job has been let in and can be tried at all; if not, its note says why."""
    if job.phase is Phase.PENDING:
        if ENQUEUE in session.configuration.actions and not job.half_bound:
            return False
        session.enqueue(job)
    problem = session.invalid(job)
    if problem is not None:
        session.note(job, problem.reason, problem.message)
    return problem is None


def _may_try(session: Session, job: Job) -> bool:
    if not job.counts[Status.PENDING] or not tries(session, job):
        return False
    known = session.refused.job(job)
    if known is not None:
        session.shortfalls[job.key] = known
    return known is None


def _tasks(session: Session, job: Job) -> Sequence[Task]:
    """What to try of a job: tasks that ask for nothing come last, and only if the gang has others too."""
    tasks = waiting(session, job)
    plain = [task for task in tasks if not task.best_effort]
    if not plain or len(plain) == len(tasks) or session.ready(job):
        return plain
    return plain + [task for task in tasks if task.best_effort]


def _complete(session: Session, job: Job) -> None:
    """A half-bound job comes before all turns."""
    tasks = _tasks(session, job)
    while tasks:
        tasks = advance(session, job, tasks, session.world.queues[job.queue]).left


class Line:
    """The jobs of a queue, the first by rank."""

    def __init__(self, session: Session, queue: Queue, jobs: Iterable[Job]) -> None:
        self._session = session
        self._queue = queue
        self._heap: list[tuple[Ranks, Job]] = [(session.job_rank(job), job) for job in jobs]
        self._left: dict[str, Sequence[Task]] = {}
        heapify(self._heap)

    def step(self) -> bool:
        """Go on with the first job that gets any further; False if none does."""
        session, heap = self._session, self._heap
        while heap:
            _, job = heappop(heap)
            tasks = self._left.pop(job.key, None) or _tasks(session, job)
            if not tasks:
                continue
            outcome = advance(session, job, tasks, self._queue)
            if outcome.left:
                self._left[job.key] = outcome.left
                heappush(heap, (session.job_rank(job), job))
            if outcome.placed:
                return True
        return False


def _take_turns(session: Session, jobs: Iterable[Job]) -> None:
    by_queue: dict[str, list[Job]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job)
    queues = [session.world.queues[name] for name in by_queue]
    lines = {queue.name: Line(session, queue, by_queue[queue.name]) for queue in queues}
    heap = [(session.queue_rank(queue), queue) for queue in queues]
    heapify(heap)
    while heap and not session.full:
        _, queue = heappop(heap)
        if not session.overused(queue) and lines[queue.name].step():
            heappush(heap, (session.queue_rank(queue), queue))
