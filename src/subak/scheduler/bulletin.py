"""What people see of gangs and queues: why members wait, how far groups are, what queues hold.

It is told when it has changed, and not too often: the sentence of a gang at most once in a while, longer for a large
one, since each of its pods gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

from subak.batch import explain, phases
from subak.batch.dimensions import Dimensions
from subak.batch.explain import Lack
from subak.batch.plugins.proportion import Proportion
from subak.batch.refusals import Shortfall
from subak.batch.session import Session
from subak.batch.trial import waiting
from subak.batch.world import WAITING, Job, Queue, Status, Task
from subak.model.reason import Reason
from subak.policy.preempt import waits_for
from subak.scheduler.halves import Halves
from subak.scheduler.jobs import Jobs
from subak.scheduler.messages import Note, ShowGroup, ShowQueue
from subak.scheduler.pace import Pace

PAUSE = 1.0
"""Seconds between two words about the same thing."""

PODS_PER_SECOND = 20
"""So many pods get another sentence in a second."""

Sentence = tuple[str, int]
"""Why a job waits, and which version of it."""


class Bulletin:
    """All that is told.  `leaving` gives the pods that leave a node, `tell` gets a task and why it waits."""

    def __init__(
        self,
        jobs: Jobs,
        halves: Halves,
        dimensions: Dimensions,
        leaving: Callable[[str], Collection[str]],
        tell: Callable[[Task, str], None],
    ) -> None:
        self._jobs = jobs
        self._halves = halves
        self._dimensions = dimensions
        self._leaving = leaving
        self._tell = tell
        self._conditions: dict[str, Note] = {}
        self._known: dict[str, tuple[object, ...]] = {}
        self._sentences: Pace[Sentence] = Pace()
        self._groups: Pace[ShowGroup] = Pace()
        self._queues: Pace[ShowQueue] = Pace()
        self._busy: dict[str, float] = {}
        """Queues of which something has changed, and when to look at them."""

    def __bool__(self) -> bool:
        """Whether there is something to tell, now or later."""
        return bool(self._busy or self._sentences or self._groups or self._queues)

    def learn(self, session: Session, now: float) -> None:
        """Take in what a session found out about jobs that wait."""
        for job in self._jobs.waiting():
            shortfall, problem = session.shortfalls.get(job.key), session.notes.get(job.key)
            if session.full and shortfall is None and problem is None:
                continue  # the next session comes to it
            misfit = "" if job.words else session.misfits.get(job.name, "")
            facts = (job.version, job.min_member, job.queue, shortfall, problem, misfit)
            if self._known.get(job.key) == facts:
                continue
            self._known[job.key] = facts
            why = self._why(session, job, shortfall, now)
            if why or shortfall is not None:
                self._sentences.say(job.key, (why, job.version))
            if job.written:
                self._judge(session, job)
                self._jobs.touch(job)

    def unschedulable(self, job: Job) -> bool:
        """Whether the last session found that the group lacks members which it must have."""
        condition = self._conditions.get(job.key)
        return condition is not None and condition.type == phases.UNSCHEDULABLE

    def see(self, job: Job, whole: bool) -> None:
        """Something about the job has changed; `whole` says that all its members have what they need."""
        if not job.waiting_count:
            self._known.pop(job.key, None)
            self._sentences.forget(job.key)
        if job.written:
            if whole and (job.key not in self._conditions or self.unschedulable(job)):
                self._conditions[job.key] = Note(phases.SCHEDULED, "True", phases.READY_REASON, "")
            before, shown = self._groups.last(job.key), self._group(job)
            self._groups.say(job.key, shown, urgent=before is None or before.phase != shown.phase)

    def see_queue(self, name: str) -> None:
        """Something about a queue or one of its jobs has changed."""
        self._busy.setdefault(name, self._queues.free_at(name))

    def forget(self, key: str) -> None:
        """The job is gone."""
        self._conditions.pop(key, None)
        self._known.pop(key, None)
        self._sentences.forget(key)
        self._groups.forget(key)

    def instructions(self, now: float) -> Iterator[ShowGroup | ShowQueue]:
        """What is to be shown now; pods are told why they wait."""
        for key, (message, _) in self._sentences.due(now, self._pause):
            for task in self._jobs.world.jobs[key].with_status(*WAITING):
                self._tell(task, message)
        for _, group in self._groups.due(now, lambda key: PAUSE):
            yield group
        for name in [name for name, at in self._busy.items() if at <= now]:
            del self._busy[name]
            found = self._jobs.world.queues.get(name)
            if found is None or not found.uid:  # without an object it is told nowhere
                self._queues.forget(name)
            else:
                self._queues.say(name, self._queue(found))
        for _, queue in self._queues.due(now, lambda key: PAUSE):
            yield queue

    def next(self) -> float | None:
        """When something is to be told; None if nothing is."""
        each = (self._sentences.next(), self._groups.next(), self._queues.next(), *self._busy.values())
        return min((time for time in each if time is not None), default=None)

    def _pause(self, key: str) -> float:
        return max(PAUSE, self._jobs.world.jobs[key].waiting_count / PODS_PER_SECOND)

    def _why(self, session: Session, job: Job, shortfall: Shortfall | None, now: float) -> str:
        problem = session.notes.get(job.key)
        held_back = "" if problem is None else problem.message
        missing = self._jobs.missing(job)
        if not job.words:
            kept = next(job.with_status(Status.PIPELINED), None)
            if kept is not None:
                return waits_for(kept.node, sorted(self._leaving(kept.node)))
            return missing or held_back or session.misfits.get(job.name, "") or (shortfall.why if shortfall else "")
        proportion = session.plugin(Proportion.name)
        deserved = proportion.deserved.get(job.queue) if isinstance(proportion, Proportion) else None
        nodes = {task.node for task in job.with_status(Status.PIPELINED)}
        outlook = explain.outlook(
            job,
            session.world.queues.get(job.queue),
            fitting=None if shortfall is None else shortfall.fitting + job.ready_count,
            lacks=() if shortfall is None else self._lacks(session, job, shortfall),
            held_back=held_back,
            missing=missing,
            leaving=sum(len(self._leaving(node)) for node in nodes),
            deserved=deserved,
            seconds_left=self._halves.left(job, now),
        )
        return explain.for_member(job.name, outlook)

    @staticmethod
    def _lacks(session: Session, job: Job, shortfall: Shortfall) -> Iterator[Lack]:
        tasks = waiting(session, job)
        if shortfall.missing and 0 <= shortfall.first < len(tasks):
            reasons = [reason for reason in Reason if f"({reason})" in shortfall.why]
            what = explain.lacking(tasks[shortfall.first].request, reasons, shortfall.why)
            yield Lack(shortfall.missing, what)

    def _judge(self, session: Session, job: Job) -> None:
        """Note the condition of a group."""
        found = phases.condition(session, job)
        if found is not None:
            self._conditions[job.key] = Note(found.type, "True", found.reason, found.message)

    def _group(self, job: Job) -> ShowGroup:
        return ShowGroup(
            job.words,
            job.name,
            job.uid,
            job.phase.value,
            job.counts[Status.RUNNING],
            job.counts[Status.SUCCEEDED],
            job.counts[Status.FAILED],
            self._conditions.get(job.key),
        )

    def _queue(self, queue: Queue) -> ShowQueue:
        counts = Counter(job.phase.value for job in queue.jobs.values() if job.written)
        held = self._dimensions.write(queue.held, self._jobs.spoken(queue.name))
        return ShowQueue(queue.name, queue.state.value, dict(counts), held)
