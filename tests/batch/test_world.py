"""Tallies of jobs and queues say what a recount says, after any history."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from subak.batch.amounts import add
from subak.batch.world import ASKED, COUNTED, READY, WAITING, Job, Queue, Status, Task, World
from subak.model import manifest
from subak.model.request import Request
from tests.support.fuzz import histories

QUEUES = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia/memory"]), st.integers(0, 1 << 40), max_size=3)


class Worlds(RuleBasedStateMachine):
    """Jobs, tasks and queues come, change and go in any order; a queue may come after its jobs."""

    jobs: Bundle[Job] = Bundle("jobs")
    tasks: Bundle[Task] = Bundle("tasks")

    @initialize()
    def start(self) -> None:
        self.world = World()
        self._number = 0

    def _next(self) -> str:
        self._number += 1
        return f"x/{self._number}"

    @rule(name=QUEUES, weight=st.integers(1, 9))
    def put_queue(self, name: str, weight: int) -> None:
        self.world.put_queue(Queue(name, weight=weight))

    @rule(name=QUEUES)
    def remove_queue(self, name: str) -> None:
        self.world.remove_queue(name)

    @rule(target=jobs, queue=QUEUES, min_member=st.integers(1, 3))
    def put_job(self, queue: str, min_member: int) -> Job:
        job = Job(self._next(), queue=queue, min_member=min_member)
        self.world.put_job(job)
        return job

    @rule(job=consumes(jobs))
    def remove_job(self, job: Job) -> None:
        self.world.remove_job(job.key)

    @rule(target=jobs, job=consumes(jobs))
    def put_again(self, job: Job) -> Any:
        if self.world.jobs.get(job.key) is not job:
            return multiple()
        self.world.put_job(job)
        return job

    @rule(job=jobs, queue=QUEUES)
    def change_queue(self, job: Job, queue: str) -> None:
        if self.world.jobs.get(job.key) is job:
            self.world.change_queue(job, queue)

    @rule(target=tasks, job=jobs, amounts=AMOUNTS, status=st.sampled_from(Status), role=st.sampled_from(["", "r"]))
    def put_task(self, job: Job, amounts: dict[str, float], status: Status, role: str) -> Task:
        task = Task(self._next(), manifest.Pod(), Request(), amounts, role, status=status)
        self.world.put_task(job, task)
        return task

    @rule(task=consumes(tasks))
    def remove_task(self, task: Task) -> None:
        self.world.remove_task(task)

    @rule(target=tasks, task=consumes(tasks))
    def put_task_again(self, task: Task) -> Task:
        again = Task(task.key, task.pod, task.request, task.amounts, task.role, status=task.status)
        self.world.put_task(task.job, again)
        return again

    @rule(task=tasks, status=st.sampled_from(Status))
    def move(self, task: Task, status: Status) -> None:
        self.world.move(task, status)

    @rule(task=tasks, amounts=AMOUNTS)
    def measure(self, task: Task, amounts: dict[str, float]) -> None:
        self.world.measure(task, amounts)

    @invariant()
    def tallies_are_true(self) -> None:
        world: World | None = getattr(self, "world", None)
        if world is None:
            return
        for job in world.jobs.values():
            tasks = list(job.tasks.values())
            assert job.held == _sum(task for task in tasks if task.status in COUNTED)
            assert job.asked == _sum(task for task in tasks if task.status in ASKED)
            assert +job.counts == Counter(task.status for task in tasks)
            assert job.ready_count == sum(task.status in READY for task in tasks)
            assert job.waiting_count == sum(task.status in WAITING for task in tasks)
            unfinished = bool(job.waiting_count) or job.ready_count < job.min_member
            assert (world.unfinished.get(job.key) is job) == unfinished
        for queue in world.queues.values():
            jobs = {job.key: job for job in world.jobs.values() if job.queue == queue.name}
            assert queue.jobs == jobs
            tasks = [task for job in jobs.values() for task in job.tasks.values()]
            assert queue.held == _sum(task for task in tasks if task.status in COUNTED)
            assert queue.asked == _sum(task for task in tasks if task.status in ASKED)


def _sum(tasks: Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for task in tasks:
        add(total, task.amounts)
    return total


Worlds.TestCase.settings = histories(quick=20, ci=300)
TestWorlds = Worlds.TestCase
