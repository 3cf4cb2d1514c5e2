"""Jobs, their tasks, and the queues they are in; with tallies of what each holds and asks for.

A job is a gang: pods of which at least `min_member` start together.  A pod by itself is a job of one.  `World.move` is
the only way in which a task changes its status, so the tallies of jobs and queues are always true.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from subak.batch.amounts import Amounts, add
from subak.model import manifest
from subak.model.request import Request

DEFAULT = "default"
"""The queue of those who name none."""


class Status(Enum):
    """How far a task is."""

    PENDING = "Pending"
    PIPELINED = "Pipelined"
    """A place is kept for it, which others have still to leave."""
    ALLOCATED = "Allocated"
    """Decided in this session."""
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    __hash__ = object.__hash__  # statuses are looked up all the time, and an Enum's own hash takes three times as long


HOLDING = frozenset({Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING})
"""Tasks that hold what they asked for.  Those that leave hold it too, but no longer count for their job."""

COUNTED = HOLDING | {Status.PIPELINED}
"""Tasks that count for what their queue and job hold: a place that is kept is spent."""

READY = HOLDING | {Status.SUCCEEDED}
WAITING = frozenset({Status.PENDING, Status.PIPELINED})
ASKED = COUNTED | {Status.PENDING}
FINISHED = frozenset({Status.SUCCEEDED, Status.FAILED})


class Phase(StrEnum):
    """How far a job is, as its PodGroup says."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


class State(StrEnum):
    """Whether a queue takes jobs."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


@dataclass(slots=True, eq=False)
class Task:
    """A pod of a job; `key` is its `namespace/name`.

    `amounts` are what it asks for, or holds as soon as that is known.  `role` is the kind of member (`volcano.sh/
    task-spec`), `node` where it is or will be, `preemptable` whether its user lets it be taken, `paused_until` when it
    may be tried again after a binding that was refused.
    """

    key: str
    pod: manifest.Pod
    request: Request
    amounts: Amounts
    role: str = ""
    priority: int = 0
    created: float = 0.0
    preemptable: bool = True
    status: Status = Status.PENDING
    node: str = ""
    paused_until: float = 0.0
    job: Job = field(init=False, repr=False)
    best_effort: bool = field(init=False, repr=False)
    """Whether it asks for nothing but to run."""

    def __post_init__(self) -> None:
        self.best_effort = not (self.amounts.keys() - {"pods"})

    @property
    def number(self) -> int:
        """The number at the end of its name, by which members of a job are told apart; -1 without."""
        digits = self.key.rpartition("-")[2]
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else -1


@dataclass(slots=True, eq=False)
class Job:
    """Pods that start together.  `key` is unique among all jobs (`gangs.key`), `name` is `namespace/name` for people.

    `words` are those in which it was said (`model.group.Words`), empty for a pod by itself.  `min_roles` are how many
    of each role must be among them.  `min_resources` is what it must get at least, None if it does not say.  `timeout`
    is for how long a part of it may run alone; None for the default.  `written` says that there is an object that shows
    how far it is.  `arrived` numbers jobs in the order in which they came, because servers tell whole seconds.  `held`
    and `asked` are tallies of its tasks.  `ready_count` is how many have their places, `waiting_count` how many have
    not, of which `best_effort_count` ask for nothing, and `roles` how many of each role have which status.
    """

    key: str
    name: str = ""
    words: str = ""
    uid: str = ""
    queue: str = DEFAULT
    min_member: int = 1
    min_roles: Mapping[str, int] = field(default_factory=dict)
    min_resources: Amounts | None = None
    priority: int = 0
    created: float = 0.0
    arrived: int = 0
    phase: Phase = Phase.PENDING
    timeout: float | None = None
    written: bool = False
    tasks: dict[str, Task] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    counts: Counter[Status] = field(default_factory=Counter)
    roles: dict[str, Counter[Status]] = field(default_factory=dict)
    ready_count: int = 0
    waiting_count: int = 0
    best_effort_count: int = 0
    version: int = 0
    """Grows whenever one of its tasks comes, goes or changes its status."""

    @property
    def namespace(self) -> str:
        """Where it lives."""
        return self.name.partition("/")[0]

    def count(self, *statuses: Status) -> int:
        """How many of its tasks have one of these statuses."""
        return sum(self.counts[status] for status in statuses)

    def with_status(self, *statuses: Status) -> Iterator[Task]:
        """Its tasks that have one of these."""
        return (task for task in self.tasks.values() if task.status in statuses)

    @property
    def minimums(self) -> Mapping[str, int]:
        """How many of each role must be among those that start: Volcano asks for it where `min_member` covers all."""
        return self.min_roles if self.min_member >= sum(self.min_roles.values()) else {}

    def role_count(self, role: str, statuses: Iterable[Status]) -> int:
        """How many tasks of this role have one of these statuses."""
        counts = self.roles.get(role)
        return 0 if counts is None else sum(counts[status] for status in statuses)

    @property
    def half_bound(self) -> bool:
        """Whether a part of it has places for good, and that is not enough: it must be completed, or give them back."""
        if self.ready_count >= self.min_member or self.phase not in (Phase.PENDING, Phase.INQUEUE):
            return False
        return self.count(Status.BINDING, Status.BOUND, Status.RUNNING) > 0


@dataclass(slots=True, eq=False)
class Queue:
    """A queue.  `capability` limits only what it names; `held` and `asked` are tallies of its jobs.

    What is asked for includes what is held.
    """

    name: str
    uid: str = ""
    weight: int = 1
    priority: int = 0
    capability: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    reclaimable: bool = True
    state: State = State.OPEN
    created: float = 0.0
    jobs: dict[str, Job] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)


class World:
    """All jobs and queues; `batch.capacity` knows what the cluster has.

    Jobs may name a queue that is not there (yet): they are in no session until it is.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.unfinished: dict[str, Job] = {}
        """Jobs that a session looks at: a task waits, or fewer are there than must be."""

    def put_queue(self, queue: Queue) -> None:
        """Add a queue, or replace it by what it is now."""
        old = self.queues.get(queue.name)
        if old is not None:
            queue.jobs, queue.held, queue.asked = old.jobs, old.held, old.asked
        else:
            for job in self.jobs.values():
                if job.queue == queue.name:
                    self._join(queue, job)
        self.queues[queue.name] = queue

    def remove_queue(self, name: str) -> None:
        """Forget a queue; its jobs stay."""
        self.queues.pop(name, None)

    def put_job(self, job: Job) -> None:
        """Add a job, or replace the one of this key."""
        self.remove_job(job.key)
        self.jobs[job.key] = job
        self.look(job)
        queue = self.queues.get(job.queue)
        if queue is not None:
            self._join(queue, job)

    def remove_job(self, key: str) -> None:
        """Forget a job with its tasks."""
        job = self.jobs.pop(key, None)
        if job is not None:
            self.unfinished.pop(key, None)
            self._part(job)

    def change_queue(self, job: Job, name: str) -> None:
        """The job is in another queue from now on."""
        self._part(job)
        job.queue = name
        queue = self.queues.get(name)
        if queue is not None:
            self._join(queue, job)

    def put_task(self, job: Job, task: Task) -> None:
        """Add a task to a job, or replace the one of this key."""
        if task.key in job.tasks:
            self.remove_task(job.tasks[task.key])
        task.job = job
        job.tasks[task.key] = task
        self._count(task, 1)
        self._tally(task, 1)
        self.look(job)

    def remove_task(self, task: Task) -> None:
        """Forget a task."""
        self._tally(task, -1)
        self._count(task, -1)
        del task.job.tasks[task.key]
        self.look(task.job)

    def move(self, task: Task, status: Status) -> None:
        """The task has this status from now on."""
        old = task.status
        if old is status:
            return
        self._count(task, -1)
        task.status = status
        self._count(task, 1)
        if (old in COUNTED) is not (status in COUNTED):
            self._hold(task, 1 if status in COUNTED else -1)
        if (old in ASKED) is not (status in ASKED):
            self._ask(task, 1 if status in ASKED else -1)
        self.look(task.job)

    def measure(self, task: Task, amounts: Amounts) -> None:
        """The task asks for, or holds, so much."""
        self._tally(task, -1)
        self._count(task, -1)
        task.amounts = amounts
        task.__post_init__()
        self._count(task, 1)
        self._tally(task, 1)

    @staticmethod
    def _count(task: Task, sign: int) -> None:
        job, status = task.job, task.status
        job.version += 1
        job.counts[status] += sign
        if status in READY:
            job.ready_count += sign
        elif status in WAITING:
            job.waiting_count += sign
            job.best_effort_count += sign * task.best_effort
        if task.role:
            job.roles.setdefault(task.role, Counter())[status] += sign

    def look(self, job: Job) -> None:
        """Note whether sessions have to look at the job, also after its minimum has changed."""
        if self.jobs.get(job.key) is job and (job.waiting_count or job.ready_count < job.min_member):
            self.unfinished[job.key] = job
        else:
            self.unfinished.pop(job.key, None)

    def _tally(self, task: Task, sign: int) -> None:
        if task.status in COUNTED:
            self._hold(task, sign)
        if task.status in ASKED:
            self._ask(task, sign)

    def _hold(self, task: Task, sign: int) -> None:
        add(task.job.held, task.amounts, sign)
        queue = self.queues.get(task.job.queue)
        if queue is not None and task.job.key in queue.jobs:
            add(queue.held, task.amounts, sign)

    def _ask(self, task: Task, sign: int) -> None:
        add(task.job.asked, task.amounts, sign)
        queue = self.queues.get(task.job.queue)
        if queue is not None and task.job.key in queue.jobs:
            add(queue.asked, task.amounts, sign)

    @staticmethod
    def _join(queue: Queue, job: Job) -> None:
        queue.jobs[job.key] = job
        add(queue.held, job.held)
        add(queue.asked, job.asked)

    def _part(self, job: Job) -> None:
        queue = self.queues.get(job.queue)
        if queue is not None and queue.jobs.pop(job.key, None) is not None:
            add(queue.held, job.held, -1)
            add(queue.asked, job.asked, -1)
