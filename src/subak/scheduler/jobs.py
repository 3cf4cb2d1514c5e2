"""The world of sessions, kept by events: which pod belongs to which job, and which job to which queue.

Objects come in any order: a pod before its group, a group before its queue.  A job whose group has no object yet, or is
not answered for by its owner, is in no queue, so no session sees it; `missing` says what it waits for.  A queue named
`default` is always there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from subak.batch import gangs
from subak.batch.amounts import Amounts
from subak.batch.gangs import Membership
from subak.batch.world import DEFAULT, Job, Phase, Queue, State, Status, Task, World
from subak.model import group, manifest
from subak.model.group import Group, PriorityClass, Words
from subak.model.request import Request
from subak.scheduler.messages import AskOwner

VOLCANO = "volcano"
"""Pods of this scheduler are in a queue, also those that belong to no group."""

PREEMPTABLE = "volcano.sh/preemptable"
TASK_PRIORITY = "volcano.sh/task-priority"
NOWHERE = ""
"""The queue of jobs that are not complete as objects."""

OWNERS = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
"""Kinds of owners that may say how many of their pods start together."""

Translate = Callable[[manifest.Amounts], Amounts]
"""Amounts in the words of users as amounts of sessions."""


def governed(pod: manifest.Pod) -> bool:
    """Whether sessions decide on the pod.  Raises Refusal if it says of its group what cannot be honoured."""
    return pod.spec.scheduler_name == VOLCANO or gangs.QUEUE in pod.annotations or gangs.membership(pod) is not None


class Jobs:
    """All jobs with their tasks.  `news` says that something has changed that a session may care for.

    `touched` are jobs of which something has changed, by key; who looks at them empties it.  `asking` are owners that
    were not asked yet.
    """

    def __init__(self, translate: Translate) -> None:
        self.world = World()
        self.tasks: dict[str, Task] = {}
        self.touched: dict[str, None] = {}
        self.asking: list[AskOwner] = []
        self.news = False
        self._translate = translate
        self._groups: dict[str, Group] = {}
        self._said: dict[str, Membership] = {}
        self._queue_of: dict[str, str] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._owners: dict[str, int | None] = {}
        self._by_volcano = False
        self.world.put_queue(Queue(DEFAULT))

    # Pods

    def see(self, pod: manifest.Pod, request: Request, amounts: Amounts, status: Status, node: str = "") -> Task:
        """Take in a pod as it is now; gives its task."""
        said = self._membership(pod)
        key = gangs.key(said.words, said.name)
        task = self.tasks.get(pod.key)
        if task is not None and task.job.key != key:
            self.lose(pod.key)
            task = None
        if task is None:
            task = Task(pod.key, pod, request, amounts, status=status, node=node, created=seconds(pod.metadata))
            self._join(task, said, key)
        if task.status is not status or task.amounts != amounts or task.request is not request:
            self.touch(task.job)
            self.news = self.news or not _only_goes_on(task.status, status)
            if task.amounts != amounts:
                self.world.measure(task, amounts)
            self.world.move(task, status)
        task.pod, task.request, task.node = pod, request, node
        self._read(task, said)
        return task

    def lose(self, key: str) -> Task | None:
        """The pod is no longer there, or not ours any more."""
        task = self.tasks.pop(key, None)
        if task is None:
            return None
        job = task.job
        self.world.remove_task(task)
        self.touch(job)
        self.news = True
        if job.tasks:
            self._rank(job)
        else:
            self._said.pop(job.key, None)
            self._queue_of.pop(job.key, None)
            if job.written:
                self._describe(job)
            else:
                self.world.remove_job(job.key)
        return task

    def touch(self, job: Job) -> None:
        """Something about the job has changed."""
        self.touched[job.key] = None

    def missing(self, job: Job) -> str:
        """What keeps the job out of all sessions; empty if nothing does."""
        if job.queue == NOWHERE:
            if job.words:
                return f"PodGroup {job.name} does not exist (yet): create it, or correct the name of the pod's group"
            if self._by_volcano:
                return "waits for Volcano's controllers to give it a PodGroup"
            return "waits until it is known whether its owner wants a group"
        if job.queue not in self.world.queues:
            return f"queue {job.queue} does not exist (yet): create it, or name another one"
        return ""

    # Objects

    def see_group(self, group: Group) -> None:
        """A group's object was added or has changed."""
        key = gangs.key(group.words, group.key)
        before = self._groups.get(key)
        self._groups[key] = group
        job = self.world.jobs.get(key)
        if job is None:
            job = Job(key, group.key, group.words, queue=NOWHERE)
            self.world.put_job(job)
        if before is None or before.uid != group.uid:
            job.phase = phase_of(group)
        self._describe(job)

    def lose_group(self, words: str, name: str) -> None:
        """A group's object was removed."""
        key = gangs.key(words, name)
        if self._groups.pop(key, None) is None:
            return
        job = self.world.jobs[key]
        if job.tasks:
            self._describe(job)
        else:
            self.world.remove_job(key)
            self.touch(job)

    def read_phases(self) -> None:
        """Believe what the objects say of how far their groups are: another scheduler wrote it."""
        for key, each in self._groups.items():
            self.world.jobs[key].phase = phase_of(each)

    def see_queue(self, queue: group.Queue) -> None:
        """A queue was added or has changed."""
        spec, guarantee = queue.spec, queue.spec.guarantee
        state = "" if queue.status is None else queue.status.state
        fresh = Queue(
            queue.name,
            queue.metadata.uid,
            spec.weight,
            spec.priority,
            self._translate(spec.capability or {}),
            self._translate((guarantee and guarantee.resource) or {}),
            spec.reclaimable is not False,
            State(state or "Open") if state in ("", *State) else State.UNKNOWN,
            seconds(queue.metadata),
        )
        before = self.world.queues.get(queue.name)
        if before is None or not _same_queue(before, fresh):
            self.world.put_queue(fresh)
            self._queue_changed(queue.name)

    def lose_queue(self, name: str) -> None:
        """A queue was removed; without an object, `default` is open and has weight 1."""
        if name == DEFAULT:
            self.world.put_queue(Queue(DEFAULT))
        else:
            self.world.remove_queue(name)
        self._queue_changed(name)

    def see_class(self, priority_class: PriorityClass) -> None:
        """A priority class was added or has changed."""
        self._classes[priority_class.metadata.name] = priority_class
        self._rank_all()

    def lose_class(self, name: str) -> None:
        """A priority class was removed."""
        self._classes.pop(name, None)
        self._rank_all()

    def see_owner(self, uid: str, min_member: int) -> list[str]:
        """What an owner says of its pods; the keys of those to see anew."""
        if self._owners.get(uid) == min_member:
            return []
        self._owners[uid] = min_member
        return [task.key for task in self.tasks.values() if _asks(task.pod, uid)]

    def groups_made(self, by_volcano: bool) -> list[str]:
        """Whether Volcano's controllers give pods their groups; the keys of pods to see anew."""
        if by_volcano == self._by_volcano:
            return []
        self._by_volcano = by_volcano
        return [task.key for task in self.tasks.values() if gangs.membership(task.pod) is None]

    def group(self, job: Job) -> Group | None:
        """The object of a job."""
        return self._groups.get(job.key)

    def waiting(self) -> Iterator[Job]:
        """Jobs that a session may do something for."""
        for job in self.world.jobs.values():
            if (
                job.counts[Status.PENDING]
                or job.counts[Status.PIPELINED]
                or (job.written and job.phase is Phase.PENDING)
            ):
                yield job

    # How a job comes to be what it is

    def _membership(self, pod: manifest.Pod) -> Membership:
        said = gangs.membership(pod)
        if said is not None:
            return said
        if pod.spec.scheduler_name == VOLCANO:
            if self._by_volcano:
                return Membership("", pod.key)
            owner = pod.metadata.controller
            if owner is not None and owner.kind in OWNERS:
                return self._owned(pod, owner)
        return Membership("", pod.key, 1)

    def _owned(self, pod: manifest.Pod, owner: manifest.OwnerReference) -> Membership:
        """The group of a pod whose owner may want one."""
        if owner.uid not in self._owners:
            self._owners[owner.uid] = None
            self.asking.append(AskOwner(pod.namespace, owner.api_version, owner.kind, owner.name, owner.uid))
        least = self._owners[owner.uid]
        if least is None or least <= 1:
            return Membership("", pod.key, least)
        return Membership(Words.VOLCANO, f"{pod.namespace}/podgroup-{owner.uid}", least)

    def _join(self, task: Task, said: Membership, key: str) -> None:
        job, known = self.world.jobs.get(key), self._said.get(key)
        if job is None:
            job = Job(key, said.name, said.words, queue=NOWHERE, created=task.created)
            self.world.put_job(job)
        self.tasks[task.key] = task
        self.world.put_task(job, task)
        self.touch(job)
        self.news = True
        if known is None or (said.min_member or 0) > (known.min_member or 0):
            self._said[key] = said
            self._queue_of.setdefault(key, task.pod.annotations.get(gangs.QUEUE, ""))
            self._describe(job)

    def _read(self, task: Task, said: Membership) -> None:
        """What a pod says of its part in the job."""
        annotations, before = task.pod.annotations, task.priority
        priority = annotations.get(TASK_PRIORITY, "")
        task.priority = int(priority) if priority.removeprefix("-").isdecimal() else task.pod.priority
        task.role = said.role
        wish = annotations.get(PREEMPTABLE) or task.pod.labels.get(PREEMPTABLE) or ""
        task.preemptable = wish.lower() != "false"
        if task.priority != before:
            self._rank(task.job)

    def _describe(self, job: Job) -> None:
        """Let the job be what its object says, or else its pods."""
        self.touch(job)
        self.news = True
        each, said = self._groups.get(job.key), self._said.get(job.key)
        job.written = each is not None
        queue = self._queue_of.get(job.key) or DEFAULT
        if each is not None:
            job.uid, job.min_member, job.min_roles = each.uid, each.min_member, each.min_roles
            job.min_resources = None if each.min_resources is None else self._translate(each.min_resources)
            job.timeout, job.created = each.timeout, seconds_of(each.created) or job.created
            queue = each.queue or queue
        elif said is not None and said.min_member is not None:
            job.uid, job.min_member, job.min_roles = "", said.min_member, dict(said.min_roles)
            job.min_resources, job.timeout = None, said.timeout
        else:
            queue = NOWHERE
        if job.queue != queue:
            self.world.change_queue(job, queue)
        self._rank(job)

    def _rank(self, job: Job) -> None:
        """How important a job is: as its class says, or the default class, or its pods."""
        each = self._groups.get(job.key)
        priority = max((task.priority for task in job.tasks.values()), default=0)
        if each is not None:
            named = self._classes.get(each.priority_class) or self._default_class
            priority = priority if named is None else named.value
        if priority != job.priority:
            job.priority, self.news = priority, True

    def _rank_all(self) -> None:
        for job in self.world.jobs.values():
            self._rank(job)

    @property
    def _default_class(self) -> PriorityClass | None:
        return next((each for each in self._classes.values() if each.global_default), None)

    def _queue_changed(self, name: str) -> None:
        self.news = True
        for job in self.world.jobs.values():
            if job.queue == name:
                self.touch(job)


def phase_of(group: Group) -> Phase:
    """How far a group is, as its object says."""
    return Phase(group.phase) if group.phase in tuple(Phase) else Phase.PENDING


def seconds(metadata: manifest.Metadata) -> float:
    """When an object was created, in seconds since 1970; 0 if it does not say."""
    return seconds_of(metadata.creation_timestamp or "")


def seconds_of(text: str) -> float:
    """A time as API servers write it, in seconds since 1970; 0 if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _asks(pod: manifest.Pod, uid: str) -> bool:
    """Whether this owner may want a group of the pod."""
    owner = pod.metadata.controller
    return owner is not None and owner.uid == uid


def _only_goes_on(before: Status, now: Status) -> bool:
    """Whether a task that has its place has just come further with it."""
    forward = (Status.BINDING, Status.BOUND, Status.RUNNING)
    return before in forward and now in forward


def _same_queue(one: Queue, other: Queue) -> bool:
    facts = ("uid", "weight", "priority", "capability", "guarantee", "reclaimable", "state")
    return all(getattr(one, name) == getattr(other, name) for name in facts)
