"""Queues get of the cluster in proportion to their weights (`batch.shares`).

first             the queue with the higher priority, then the one that holds the smaller part of what it deserves
overused          it holds all that it deserves, of every resource
a task may start  if the queue then holds no more than it deserves, of the resources that the task asks for
a job is let in   if the queue is open, and minResources + what its jobs were promised <= the most that it may have,
                  in the resources that minResources names
a task may leave  for another queue while its own holds more than it deserves of something that the task holds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from subak.batch import Plugin, Rank, Vote, shares
from subak.batch.amounts import Amounts, add, exceeding, plus
from subak.batch.arguments import Arguments
from subak.batch.capacity import Capacity
from subak.batch.let_in import promised
from subak.batch.session import Session
from subak.batch.wording import called, figure
from subak.batch.world import Job, Queue, State, Task

QUOTA = "queue resource quota insufficient: insufficient"
"""Volcano's words."""


class Proportion(Plugin):
    """Shares the cluster among queues.  `deserved` is by the queue's name."""

    name = "proportion"
    vetoes = ("reclaimable",)

    def __init__(self, session: Session, arguments: Arguments) -> None:
        super().__init__(session, arguments)
        self._total = session.snapshot.watched(Capacity).total
        self._guaranteed = shares.guarantees(session.world.queues.values())
        self.deserved: Mapping[str, Amounts] = shares.deserved(session.queues, self._total, self._guaranteed)
        self._promised: dict[str, dict[str, float]] = {}

    def queue_rank(self, queue: Queue) -> Rank:
        return (-queue.priority, shares.share(queue.held, self._deserved(queue)))

    def overused(self, queue: Queue) -> bool:
        return shares.satisfied(queue.held, self._deserved(queue))

    def unallocatable(self, queue: Queue, task: Task) -> str:
        deserves = self._deserved(queue)
        short = exceeding(plus(queue.held, task.amounts), deserves, among=task.amounts)
        if not short:
            return ""
        return _insufficient(short[0], f"queue {queue.name} deserves", deserves, "held", queue.held, task.amounts)

    def preemptive(self, queue: Queue, task: Task) -> bool:
        return not self.unallocatable(queue, task)

    def enqueueable(self, job: Job) -> Vote:
        queue = self.session.world.queues[job.queue]
        if queue.state is not State.OPEN:
            self.session.note(job, "NotEnoughResources", f"queue {queue.name} is {queue.state.value}")
            return Vote.REJECT
        wanted = job.min_resources
        if wanted is None:
            return Vote.PERMIT
        limits = shares.most(queue, self._total, self._guaranteed)
        promises = self._promises(queue)
        short = exceeding(plus(promises, wanted), limits, among=wanted)
        if not short:
            return Vote.PERMIT
        why = _insufficient(short[0], f"queue {queue.name} may have", limits, "were promised", promises, wanted)
        self.session.note(job, "NotEnoughResources", why)
        return Vote.REJECT

    def enqueued(self, job: Job) -> None:
        if job.queue in self._promised:  # else it is counted when somebody first wants to know
            add(self._promised[job.queue], job.min_resources or {})

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        left: dict[str, dict[str, float]] = {}
        victims: list[Task] = []
        for task in candidates:
            queue = self.session.world.queues[task.job.queue]
            holds = left.setdefault(queue.name, dict(queue.held))
            if exceeding(holds, self._deserved(queue), among=task.amounts):
                add(holds, task.amounts, -1)
                victims.append(task)
        return victims

    def _deserved(self, queue: Queue) -> Amounts:
        return self.deserved.get(queue.name, {})

    def _promises(self, queue: Queue) -> dict[str, float]:
        found = self._promised.get(queue.name)
        if found is None:
            found = self._promised[queue.name] = {}
            for job in queue.jobs.values():
                add(found, promised(job))
        return found


def _insufficient(name: str, who: str, limits: Amounts, how: str, taken: Amounts, asked: Amounts) -> str:
    limit, spent, more = (figure(name, each.get(name, 0)) for each in (limits, taken, asked))
    return f"{QUOTA} {called(name)}: {who} {limit}, {spent} {how}, {more} asked"
