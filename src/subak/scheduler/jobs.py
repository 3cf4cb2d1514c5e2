"""The world of sessions, kept by events: which pod belongs to which job, and which job to which queue.

Objects come in any order: a pod before its group, a group before its queue.  A job whose group has no object yet, or of
which it is not known whether its owner wants a group, is in no queue, so no session sees it; `missing` says what it
waits for.  A queue named `default` is always there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

import msgspec

from subak.batch import gangs
from subak.batch.amounts import Amounts
from subak.batch.dimensions import Dimensions
from subak.batch.gangs import Membership
from subak.batch.world import DEFAULT, Job, Phase, Queue, State, Status, Task, World
from subak.model import manifest
from subak.model.group import Group, PriorityClass, Words
from subak.model.group import Queue as QueueObject
from subak.model.request import Request
from subak.scheduler.messages import AskOwner, MakeGroup

VOLCANO = "volcano"
"""Pods of this scheduler are in a queue, also those that belong to no group."""

PREEMPTABLE = "volcano.sh/preemptable"
TASK_PRIORITY = "volcano.sh/task-priority"
NOWHERE = ""
"""The queue of jobs of which we do not know enough."""

OWNERS = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
"""Kinds of owners that may say how many of their pods start together."""

Written = Mapping[str, manifest.Amount] | None
Read = Callable[[Written, str], tuple[dict[str, float], list[str]]]
"""How amounts that users wrote are understood; a text says where."""

FORWARD = (Status.BINDING, Status.BOUND, Status.RUNNING)


def governed(pod: manifest.Pod) -> bool:
    """Whether sessions decide on the pod.  Raises Refusal if it says of its group what cannot be honoured."""
    return pod.spec.scheduler_name == VOLCANO or gangs.QUEUE in pod.annotations or gangs.membership(pod) is not None


@dataclass(slots=True)
class Owner:
    """Who made pods: what it says of them, None if it has not been read; whether their group was made; their keys."""

    ask: AskOwner
    min_member: int | None = None
    made: bool = False
    pods: dict[str, None] = field(default_factory=dict)


class Jobs:
    """All jobs with their tasks.  `news` says that something has changed that a session may care for.

    `touched` are jobs of which something has changed, by key, and `touched_queues` those queues of which, or of whose
    jobs, something has; who looks at them empties it.  So it is with `asking`, what is to be asked of owners or made
    for them, and `warnings`.
    """

    def __init__(self, dimensions: Dimensions) -> None:
        self.world = World()
        self.tasks: dict[str, Task] = {}
        self.touched: dict[str, None] = {}
        self.touched_queues: dict[str, None] = {}
        self.asking: list[AskOwner | MakeGroup] = []
        self.warnings: list[str] = []
        self.news = False
        self._dimensions = dimensions
        self._groups: dict[str, Group] = {}
        self._queues: dict[str, QueueObject] = {}
        self._said: dict[str, Counter[Membership]] = {}
        self._member: dict[str, Membership] = {}
        self._refused: dict[str, str] = {}
        self._warned: dict[str, tuple[str, ...]] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._owners: dict[str, Owner] = {}
        self._by_volcano = False
        self._numbers = count(1)
        self.world.put_queue(Queue(DEFAULT))

    def waiting(self) -> Iterator[Job]:
        """Jobs that a session may do something for."""
        for job in self.world.unfinished.values():
            if job.waiting_count or (job.written and job.phase is Phase.PENDING):
                yield job

    def missing(self, job: Job) -> str:
        """What keeps the job out of all sessions; empty if nothing does."""
        if job.key in self._refused:
            return self._refused[job.key]
        if job.queue == NOWHERE:
            if job.words:
                return f"PodGroup {job.name} does not exist (yet): create it, or correct the name of the pod's group"
            if self._by_volcano:
                return "waits for Volcano's controllers to give it a PodGroup"
            return "waits until it is known whether its owner wants a group"
        if job.queue not in self.world.queues:
            return f"queue {job.queue} does not exist (yet): create it, or name another one"
        return ""

    def spoken(self, queue: str) -> tuple[str, ...]:
        """The names of resources by which a queue's object speaks."""
        found = self._queues.get(queue)
        return () if found is None else tuple(found.spec.capability or ())

    def touch(self, job: Job) -> None:
        """Something about the job has changed."""
        self.touched[job.key] = None
        self.touched_queues[job.queue] = None

    # Pods

    def see(self, pod: manifest.Pod, request: Request, amounts: Amounts, status: Status, node: str = "") -> Task:
        """Take in a pod as it is now; gives its task."""
        said = self._membership(pod)
        task = self.tasks.get(pod.key)
        if task is not None and self._member[pod.key] != said:
            self._leave(task)
            task = None
        if task is None:
            task = Task(pod.key, pod, request, amounts, said.role, status=status, node=node)
            task.created = seconds_of(pod.metadata.creation_timestamp)
            self._join(task, said)
        elif task.status is not status or task.amounts != amounts or task.request != request:
            self.touch(task.job)
            self.news = self.news or not (task.status in FORWARD and status in FORWARD)
            if task.amounts != amounts:
                self.world.measure(task, amounts)
            self.world.move(task, status)
        task.pod, task.request, task.node = pod, request, node
        self._read(task)
        return task

    def lose(self, key: str) -> Task | None:
        """The pod is no longer there, or not ours any more."""
        task = self.tasks.get(key)
        if task is not None:
            self._leave_owner(task.pod)
            self._leave(task)
        return task

    def _leave(self, task: Task) -> None:
        """The task is no longer in its job."""
        job, said = task.job, self._member.pop(task.key)
        del self.tasks[task.key]
        self.world.remove_task(task)
        self.touch(job)
        self.news = True
        members = self._said[job.key]
        members[said] -= 1
        if not members[said]:
            del members[said]
        if not members:
            del self._said[job.key]
        if not job.tasks and not job.written:
            self._forget(job)
        elif said not in members:
            self._describe(job)
        elif task.priority == job.priority:
            self._rank(job)

    # Objects

    def see_group(self, group: Group) -> None:
        """A group's object was added or has changed."""
        key = gangs.key(group.words, group.key)
        before = self._groups.get(key)
        self._groups[key] = group
        job = self.world.jobs.get(key)
        if job is None:
            job = Job(key, group.key, group.words, queue=NOWHERE, arrived=next(self._numbers))
            self.world.put_job(job)
        if before is None or before.uid != group.uid:
            job.phase = phase_of(group)
        if before is None or not _same_group(before, group):
            self._describe(job)

    def lose_group(self, words: str, name: str) -> None:
        """A group's object was removed."""
        key = gangs.key(words, name)
        if self._groups.pop(key, None) is not None:
            job = self.world.jobs[key]
            if job.tasks:
                self._describe(job)
            else:
                self._forget(job)

    def group(self, job: Job) -> Group | None:
        """The object of a job."""
        return self._groups.get(job.key)

    def read_phases(self) -> None:
        """Believe what the objects say of how far their groups are: another scheduler wrote it."""
        for key, each in self._groups.items():
            self.world.jobs[key].phase = phase_of(each)

    def read_amounts(self) -> None:
        """Read amounts of queues and groups anew, since names and percents may mean something else now."""
        for queue in tuple(self._queues.values()):
            self.see_queue(queue)
        for key in self._groups:
            self._describe(self.world.jobs[key])

    def see_queue(self, queue: QueueObject) -> None:
        """A queue was added or has changed."""
        self._queues[queue.name] = queue
        spec = queue.spec
        guaranteed = None if spec.guarantee is None else spec.guarantee.resource
        state = "" if queue.status is None else queue.status.state
        fresh = Queue(
            queue.name,
            queue.metadata.uid,
            spec.weight,
            spec.priority,
            self._amounts(self._dimensions.limits, spec.capability, f"queue {queue.name}: spec.capability"),
            self._amounts(self._dimensions.read, guaranteed, f"queue {queue.name}: spec.guarantee.resource"),
            spec.reclaimable is not False,
            State(state or "Open") if state in ("", *State) else State.UNKNOWN,
            seconds_of(queue.metadata.creation_timestamp),
        )
        before = self.world.queues.get(queue.name)
        if before is None or not _same_queue(before, fresh):
            self.world.put_queue(fresh)
            self._queue_changed(queue.name)

    def lose_queue(self, name: str) -> None:
        """A queue was removed; without an object, `default` is open and has weight 1."""
        self._queues.pop(name, None)
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
        owner = self._owners.get(uid)
        if owner is None or owner.min_member == min_member:
            return []
        owner.min_member = min_member
        return list(owner.pods)

    def groups_made(self, by_volcano: bool) -> list[str]:
        """Whether Volcano's controllers give pods their groups; the keys of pods to see anew."""
        if by_volcano == self._by_volcano:
            return []
        self._by_volcano = by_volcano
        return [task.key for task in self.tasks.values() if gangs.membership(task.pod) is None]

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
        known = self._owners.get(owner.uid)
        if known is None:
            ask = AskOwner(pod.namespace, owner.api_version, owner.kind, owner.name, owner.uid)
            known = self._owners[owner.uid] = Owner(ask)
            self.asking.append(ask)
        known.pods[pod.key] = None
        least = known.min_member
        if least is None or least <= 1:
            return Membership("", pod.key, least)
        name = f"{pod.namespace}/podgroup-{owner.uid}"
        if not known.made and gangs.key(Words.VOLCANO, name) not in self._groups:
            known.made = True
            queue = pod.annotations.get(gangs.QUEUE, DEFAULT)
            self.asking.append(MakeGroup(pod.namespace, known.ask, least, queue, pod.spec.priority_class_name))
        return Membership(Words.VOLCANO, name, least)

    def _leave_owner(self, pod: manifest.Pod) -> None:
        reference = pod.metadata.controller
        owner = None if reference is None else self._owners.get(reference.uid)
        if reference is not None and owner is not None:
            owner.pods.pop(pod.key, None)
            if not owner.pods:
                del self._owners[reference.uid]

    def _join(self, task: Task, said: Membership) -> None:
        key = gangs.key(said.words, said.name)
        job = self.world.jobs.get(key)
        if job is None:
            job = Job(key, said.name, said.words, queue=NOWHERE, created=task.created, arrived=next(self._numbers))
            self.world.put_job(job)
        self.tasks[task.key], self._member[task.key] = task, said
        self.world.put_task(job, task)
        self.touch(job)
        self.news = True
        members = self._said.setdefault(key, Counter())
        members[said] += 1
        if members[said] == 1:
            self._describe(job)

    def _read(self, task: Task) -> None:
        """What a pod says of its part in the job."""
        annotations, before = task.pod.annotations, task.priority
        priority = annotations.get(TASK_PRIORITY, "")
        task.priority = int(priority) if priority.removeprefix("-").isdecimal() else task.pod.priority
        wish = annotations.get(PREEMPTABLE) or task.pod.labels.get(PREEMPTABLE) or ""
        task.preemptable = wish.lower() != "false"
        if task.priority != before:
            self._rank(task.job)

    def _describe(self, job: Job) -> None:
        """Let the job be what its object says, or else its pods."""
        self.touch(job)
        self.news = True
        each, queue = self._groups.get(job.key), NOWHERE
        terms = gangs.agreed(self._said.get(job.key, ()), each)
        job.written = each is not None
        self._refused.pop(job.key, None)
        if each is not None:
            job.uid, job.created = each.uid, seconds_of(each.created) or job.created
            least = each.min_resources
            place = f"PodGroup {job.name}: spec.minResources"
            job.min_resources = None if least is None else self._amounts(self._dimensions.read, least, place)
            if why := gangs.refusal(each):
                self._refused[job.key] = why
        if terms is not None:
            job.min_member, job.min_roles, job.timeout = terms.min_member, terms.min_roles, terms.timeout
            self._warn(job.key, terms.warnings)
            if job.key not in self._refused:
                queue = (each and each.queue) or self._wished_queue(job)
        if job.queue != queue:
            self.world.change_queue(job, queue)
            self.touch(job)
        self.world.look(job)
        self._rank(job)

    def _forget(self, job: Job) -> None:
        self.world.remove_job(job.key)
        self._refused.pop(job.key, None)
        for about in (job.key, f"PodGroup {job.name}"):
            self._warned.pop(about, None)
        self.touch(job)

    @staticmethod
    def _wished_queue(job: Job) -> str:
        """The queue that the pods of a job name, the first by name if they differ."""
        return min(
            filter(None, (task.pod.annotations.get(gangs.QUEUE) for task in job.tasks.values())), default=DEFAULT
        )

    def _amounts(self, read: Read, written: Written, place: str) -> dict[str, float]:
        found, warnings = read(written, place)
        self._warn(place, tuple(warnings))
        return found

    def _warn(self, about: str, warnings: tuple[str, ...]) -> None:
        """Tell an administrator, once."""
        if self._warned.get(about, ()) != warnings:
            self._warned[about] = warnings
            self.warnings += warnings

    def _rank(self, job: Job) -> None:
        """How important a job is: as its class says, or the default class, or its pods."""
        each = self._groups.get(job.key)
        named = None if each is None else self._classes.get(each.priority_class) or self._default_class
        pods = max((task.priority for task in job.tasks.values()), default=0)
        priority = pods if named is None else named.value
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
        self.touched_queues[name] = None
        for job in self.world.jobs.values():
            if job.queue == name:
                self.touch(job)


def phase_of(group: Group) -> Phase:
    """How far a group is, as its object says."""
    return Phase(group.phase) if group.phase in tuple(Phase) else Phase.PENDING


def seconds_of(text: str | None) -> float:
    """A time as API servers write it, in seconds since 1970; 0 if it is none."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return 0.0


def _same_group(one: Group, other: Group) -> bool:
    """Whether both versions of a group mean the same; how far it is, we know better."""
    return msgspec.structs.replace(one, version=other.version, phase=other.phase) == other


def _same_queue(one: Queue, other: Queue) -> bool:
    facts = ("uid", "weight", "priority", "capability", "guarantee", "reclaimable", "state")
    return all(getattr(one, name) == getattr(other, name) for name in facts)
