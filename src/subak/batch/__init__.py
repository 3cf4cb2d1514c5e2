"""Gangs, queues and fair shares: the scheduler configuration that Volcano's users write, over cards of every dialect.

    World     all jobs and queues, kept by events; tallies of what each holds and asks for
    Session   one run of the configured actions over the world and a snapshot
    Action    what a session does: enqueue, allocate, backfill, preempt, reclaim
    Plugin    what the actions ask: who comes first, who may go on, who may have to leave
    Statement tentative decisions about one job, which count together or not at all

A plugin is one file in `plugins`, an action one in `actions`; `registry` lists both and runs sessions.  Everything here
is pure: time is an argument, and what is decided goes to a `Hand`, which carries it out.

Where Volcano compares two jobs plugin by plugin until one tells them apart, plugins here give ranks: the ranks of all
plugins in the order of their tiers are compared at once, which is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Protocol

from subak.batch.arguments import Arguments
from subak.model.placement import Placement

if TYPE_CHECKING:
    from subak.batch.session import Session
    from subak.batch.world import Job, Queue, Task

Rank = float | tuple[float, ...]
"""The lowest comes first."""


class Vote(Enum):
    """What a plugin says to a question that several answer."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin:
    """Takes part in the questions whose methods it overrides; a configuration may switch each of them off."""

    name: ClassVar[str]
    arguments: ClassVar[Mapping[str, str]] = {}
    """The arguments that it knows, with one line of help each; `*` at the end stands for anything."""

    vetoes: ClassVar[Collection[str]] = ()
    """`preemptable` or `reclaimable`, where nobody leaves without its consent, whichever tier decides."""

    def __init__(self, session: Session, arguments: Arguments) -> None:
        self.session = session

    def job_rank(self, job: Job) -> Rank:
        """Which job of a queue comes first."""
        raise NotImplementedError

    def queue_rank(self, queue: Queue) -> Rank:
        """Which queue comes first."""
        raise NotImplementedError

    def task_rank(self, task: Task) -> Rank:
        """Which task of a job comes first."""
        raise NotImplementedError

    def invalid(self, job: Job) -> Problem | None:
        """Why the job cannot be tried at all; None if it can."""
        raise NotImplementedError

    def ready(self, job: Job) -> bool:
        """Whether enough of the job's tasks have their places."""
        raise NotImplementedError

    def pipelined(self, job: Job) -> Vote:
        """Whether enough of them have their places, or will have once others have left."""
        raise NotImplementedError

    def starving(self, job: Job) -> bool:
        """Whether the job may take from others."""
        raise NotImplementedError

    def enqueueable(self, job: Job) -> Vote:
        """Whether the job may be tried.  Who rejects notes why (`Session.note`)."""
        raise NotImplementedError

    def enqueued(self, job: Job) -> None:
        """The job may be tried from now on."""

    def overused(self, queue: Queue) -> bool:
        """Whether the queue has all that it deserves."""
        raise NotImplementedError

    def unallocatable(self, queue: Queue, task: Task) -> str:
        """Why the queue may not have this task too; empty if it may."""
        raise NotImplementedError

    def preemptive(self, queue: Queue, task: Task) -> bool:
        """Whether the queue may take from other queues for this task."""
        raise NotImplementedError

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Those who may all leave, together, for a task of the same queue."""
        raise NotImplementedError

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        """Those who may all leave, together, for a task of another queue."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job does not go on: one word for programs, and a sentence for people."""

    reason: str
    message: str


class Hand(Protocol):
    """Carries out what a session decides.  The snapshot then has the same bookings as the session's trial had."""

    def bind(self, task: Task, placement: Placement) -> None:
        """The task gets its place."""

    def keep(self, task: Task, placement: Placement) -> None:
        """The task gets this place as soon as others have left it; until then it is kept."""

    def drop(self, task: Task, why: str) -> None:
        """The place that was kept for the task is given up."""

    def evict(self, victim: Task, preemptor: Task, event: str) -> None:
        """The victim must leave; `event` is what the event is called."""
