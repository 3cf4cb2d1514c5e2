"""Plugins for tests of taking, until the real ones are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from subak.batch import Plugin, Rank, Vote
from subak.batch.amounts import minus, plus, within
from subak.batch.world import Job, Queue, Status, Task


class Priority(Plugin):
    name = "priority"

    def job_rank(self, job: Job) -> Rank:
        return -job.priority

    def task_rank(self, task: Task) -> Rank:
        return -task.priority

    def starving(self, job: Job) -> bool:
        return job.ready_count + job.count(Status.PIPELINED) < len(job.tasks)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        return [
            each
            for each in candidates
            if (
                each.priority < preemptor.priority
                if each.job is preemptor.job
                else each.job.priority < preemptor.job.priority
            )
        ]


class Gang(Plugin):
    name = "gang"

    def job_rank(self, job: Job) -> Rank:
        return self.ready(job)

    def ready(self, job: Job) -> bool:
        return job.ready_count >= job.min_member

    def pipelined(self, job: Job) -> Vote:
        enough = job.ready_count + job.count(Status.PIPELINED) >= job.min_member
        return Vote.PERMIT if enough else Vote.REJECT

    def starving(self, job: Job) -> bool:
        return job.ready_count + job.count(Status.PIPELINED) < job.min_member

    def _given(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        left: dict[str, int] = {}
        found = []
        for each in candidates:
            job = each.job
            if left.setdefault(job.key, job.ready_count) > job.min_member:
                left[job.key] -= 1
                found.append(each)
        return found

    preemptable = reclaimable = _given


class Conformance(Plugin):
    name = "conformance"
    vetoes = ("preemptable", "reclaimable")

    def _spared(self, taker: Task, candidates: Sequence[Task]) -> list[Task]:
        critical = {"system-cluster-critical", "system-node-critical"}
        return [
            each
            for each in candidates
            if each.pod.namespace != "kube-system" and each.pod.spec.priority_class_name not in critical
        ]

    preemptable = reclaimable = _spared


class Proportion(Plugin):
    name = "proportion"
    vetoes = ("reclaimable",)

    def __init__(self, session: Any, arguments: Any) -> None:
        super().__init__(session, arguments)
        total, queues = session.world.total, [q for q in session.world.queues.values() if q.jobs]
        self.deserved: dict[str, dict[str, float]] = {q.name: {} for q in queues}
        met: set[str] = set()
        remaining = dict(total)
        while open_ := [q for q in queues if q.name not in met]:
            weights = sum(q.weight for q in open_)
            taken: dict[str, float] = {}
            for q in open_:
                old = self.deserved[q.name]
                new = {}
                for name in total:
                    d = old.get(name, 0) + remaining.get(name, 0) * q.weight / weights
                    new[name] = min(d, q.capability.get(name, d), q.asked.get(name, 0))
                if new == old or within(q.asked, new):
                    met.add(q.name)
                taken = plus(taken, minus(new, old))
                self.deserved[q.name] = new
            remaining = minus(remaining, taken)

    def overused(self, queue: Queue) -> bool:
        return within(self.deserved[queue.name], queue.held)

    def unallocatable(self, queue: Queue, task: Task) -> str:
        after = plus(queue.held, task.amounts)
        return "" if within(after, self.deserved[queue.name], task.amounts) else "no"

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        held: dict[str, dict[str, float]] = {}
        found = []
        for each in candidates:
            queue = self.session.world.queues[each.job.queue]
            now = held.setdefault(queue.name, dict(queue.held))
            if not within(now, self.deserved[queue.name]):
                held[queue.name] = minus(now, each.amounts)
                found.append(each)
        return found


DOUBLES = {each.name: each for each in (Priority, Gang, Conformance, Proportion)}
