"""An attempt to give a job places: task by task, in their order, until it is ready.

    a place that is free ── else one that will be, once those have left who leave anyway ── else the task has none

A job that becomes ready is bound.  One that would be ready if others had left already keeps its places until they have.
Any other gives back everything, and is not tried again before something changes (`batch.refusals`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from subak.batch.refusals import Shortfall
from subak.batch.session import Session
from subak.batch.statement import Statement
from subak.batch.world import READY, Job, Queue, Status, Task
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy import registry
from subak.policy.preempt import MOST_UNSETTLED

PLACED = READY | {Status.PIPELINED}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an attempt: whether anybody got a place, and the tasks that come next in this session."""

    placed: bool = False
    left: Sequence[Task] = ()


def waiting(session: Session, job: Job) -> list[Task]:
    """The tasks of a job that may be tried now, in their order."""
    tasks = session.refused.order(job, lambda: sorted(job.with_status(Status.PENDING), key=session.task_rank))
    return [task for task in tasks if task.paused_until <= session.now]


def advance(session: Session, job: Job, tasks: Sequence[Task], queue: Queue | None) -> Outcome:
    """Try tasks of a job until it is ready.  Where `queue` is given, it must be allowed to have them."""
    shape = _shape(job, tasks)
    known = session.refused.shape(shape)
    if known is None:
        with session.statement(job) as statement:
            trial = Trial(session, statement, tasks, queue)
            left = trial.run()
            if len(statement) and session.ready(job):
                statement.commit()
            elif len(statement) and session.pipelined(job):
                statement.keep()
        if trial.limited:
            session.limited.add(job.key)
        if statement.kept:
            return Outcome(True, left)
        known = trial.shortfall
        if not trial.limited:
            session.refused.refuse_shape(shape, {task.request for task in tasks}, known, trial.curable)
    session.shortfalls[job.key] = known
    if queue is not None:
        _remember(session, job, known)
    return Outcome()


def _remember(session: Session, job: Job, shortfall: Shortfall) -> None:
    """Note that the job gets no further, unless that ends by itself: with a pause, or a limit of a queue or quota."""
    pending = list(job.with_status(Status.PENDING))
    if job.key in session.limited or any(task.paused_until > session.now for task in pending):
        return
    requests = {task.request for task in pending}
    curable = any(cured_by_pods(session, request) for request in requests)
    session.refused.refuse_job(job, requests, shortfall, curable)


def cured_by_pods(session: Session, request: Request) -> bool:
    """Whether a request that fits nowhere may do so after another pod got a place."""
    return bool(request.reads and registry.cures(session.snapshot, request))


def review(session: Session, job: Job) -> None:
    """Look at the places that are kept for a job: bind it if they are free now; give them up if they never will be."""
    tasks = sorted(job.with_status(Status.PIPELINED), key=session.task_rank)
    if session.refused.keeps(job, _around(session, tasks)):
        return
    with session.statement(job) as statement:
        kept = [(task, statement.release(task)) for task in tasks]
        trial = Trial(session, statement, tasks, None)
        for task, place in kept:
            trial.resume(task, place)
        if session.ready(job):
            statement.commit()
        elif session.pipelined(job):
            statement.keep()
    if not statement.kept:
        with session.statement(job) as statement:
            for task in tasks:
                statement.release(task)
            statement.commit()
    if job.counts[Status.PIPELINED]:
        still = list(job.with_status(Status.PIPELINED))
        session.refused.keep(job, {task.request for task in still}, _around(session, still))


def _around(session: Session, tasks: Iterable[Task]) -> Hashable:
    """Who is on the nodes that are kept for these tasks, and who leaves them."""
    nodes = sorted({task.node for task in tasks})
    there = tuple([frozenset(session.snapshot.pods_on(node)) for node in nodes])
    return there, tuple([frozenset(session.pods.leaving(node)) for node in nodes])


def _shape(job: Job, tasks: Sequence[Task]) -> Hashable:
    """What the outcome of a trial depends on, besides the state of the cluster."""
    minimums = job.minimums
    roles = tuple(task.role for task in tasks) if minimums else ()
    needs = tuple((role, least - job.role_count(role, PLACED)) for role, least in sorted(minimums.items()))
    return job.namespace, _needed(job), tuple([task.request for task in tasks]), roles, needs


def _needed(job: Job) -> int:
    return job.min_member - job.ready_count - job.counts[Status.PIPELINED]


class Trial:
    """One attempt within a statement.

    `limited` says that the queue or a quota kept tasks off, `curable` that other pods did: more room would not help.
    """

    def __init__(self, session: Session, statement: Statement, tasks: Sequence[Task], queue: Queue | None) -> None:
        self.limited = False
        self.curable = False
        self._session = session
        self._statement = statement
        self._job = statement.job
        self._tasks = tasks
        self._queue = queue
        self._failed: dict[Request, None] = {}
        self._fitting: set[str] = set()
        self._first: Task | None = None
        self._why = ""
        self._looked: dict[Request, int] = {}

    @property
    def shortfall(self) -> Shortfall:
        """How far it came; to be asked after it was taken back."""
        missing = sum(1 for task in self._tasks if task.request in self._failed and task.key not in self._fitting)
        first = -1 if self._first is None else waiting(self._session, self._job).index(self._first)
        return Shortfall(len(self._fitting), missing, first, self._why)

    def run(self) -> list[Task]:
        """Place tasks until the job is ready; returns those that are left to try."""
        for task in self._tasks:
            if task.request in self._session.refused:
                self._fail(task)
        if not self._reachable() or self._beyond_queue():
            return []
        round_, progress = list(self._tasks), True
        while round_ and progress:
            progress, later = False, list[Task]()
            for at, task in enumerate(round_):
                if task.request in self._failed:
                    continue
                if self._permitted(task) and self._place(task):
                    progress = True
                    if self._session.ready(self._job):
                        return round_[at + 1 :] + later
                elif cured_by_pods(self._session, task.request):
                    later.append(task)  # a later member may be what it waits for
                elif not self._reachable():
                    return []
            round_ = later
        return []

    def resume(self, task: Task, kept: Placement | None) -> bool:
        """Give a task its kept place again, now or later, or another."""
        session = self._session
        now = (None if kept is None else session.place_at(task, kept)) or session.place(task)
        if now is not None:
            self._statement.allocate(task, now)
            return True
        later = (None if kept is None else session.place_later(task, kept.node, kept)) or self._later(task)
        if later is not None:
            self._statement.pipeline(task, later)
        return later is not None

    def _place(self, task: Task) -> bool:
        placement = self._session.place(task)
        if placement is not None:
            self._statement.allocate(task, placement)
        elif (placement := self._later(task)) is not None:
            self._statement.pipeline(task, placement)
        else:
            self._refuse(task)
            return False
        self._fitting.add(task.key)
        return True

    def _later(self, task: Task) -> Placement | None:
        """A place on the first node that will have room."""
        nodes, at = self._unsettled, self._looked.get(task.request, 0)
        placement = None
        while at < len(nodes) and (placement := self._session.place_later(task, nodes[at])) is None:
            at += 1  # trials only fill nodes: what found no place there once finds none again
        self._looked[task.request] = at
        return placement

    @cached_property
    def _unsettled(self) -> list[str]:
        return sorted(self._session.pods.unsettled())[:MOST_UNSETTLED]

    def _refuse(self, task: Task) -> None:
        self._fail(task)
        if task.key in self._session.misfits:
            self.limited = True
        elif not len(self._statement) and task.request in self._failed:
            self._session.refused.refuse(task.request, self._why if task is self._first else "")

    def _fail(self, task: Task) -> None:
        if self._first is None:
            self._first, self._why = task, self._session.explain(task)
        if cured_by_pods(self._session, task.request):
            self.curable = True
        else:
            self._failed[task.request] = None

    def _permitted(self, task: Task) -> bool:
        if self._queue is None:
            return True
        why = self._session.unallocatable(self._queue, task)
        if why:
            self._limit(task, why)
        return not why

    def _limit(self, task: Task, why: str) -> None:
        self.limited = True
        self._session.misfits[task.key] = why
        if self._first is None:
            self._first, self._why = task, why
        self._failed[task.request] = None

    def _beyond_queue(self) -> bool:
        """Whether the queue may not have as many equal tasks as the job needs: then none of them is tried."""
        needed, first = _needed(self._job), self._tasks[0]
        if self._queue is None or needed < 2 or any(task.request is not first.request for task in self._tasks):
            return False
        why = self._session.unallocatable(self._queue, first, needed)
        if why:
            self._limit(first, why)
        return bool(why)

    def _reachable(self) -> bool:
        """Whether the job can still become ready, or is."""
        job = self._job
        if self._session.ready(job):
            return True
        left = [task for task in self._tasks if task.status is Status.PENDING and task.request not in self._failed]
        if len(left) < _needed(job):
            return False
        return all(
            job.role_count(role, PLACED) + sum(1 for task in left if task.role == role) >= least
            for role, least in job.minimums.items()
        )
