"""How queues stand: what each deserves, holds and asks for, and which of its jobs come next.

It is read from a session in which no action runs, so that it is what the next session would find.  Amounts are those
of `batch.amounts`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from subak.batch.configuration import Configuration
from subak.batch.plugins.proportion import Proportion
from subak.batch.registry import PLUGINS
from subak.batch.session import Session
from subak.batch.shares import share
from subak.batch.world import Job, Queue, Status, World
from subak.policy.decider import Decider

MISSING = "Missing"
"""The state of a queue that jobs name, and that is not there."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """How a job stands.  Of its pods, so many have their places (`ready`), and so many have none yet (`waiting`)."""

    name: str
    words: str = ""
    phase: str = ""
    priority: int = 0
    min_member: int = 1
    ready: int = 0
    waiting: int = 0
    half_bound: bool = False
    held: dict[str, float] = {}
    asked: dict[str, float] = {}


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """How a queue stands.

    `deserved` and `share` are None where the configuration lets queues share nothing.  `groups` are counted by phase;
    pods by themselves are in none.
    """

    name: str
    state: str
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    capability: dict[str, float] = {}
    guarantee: dict[str, float] = {}
    deserved: dict[str, float] | None = None
    held: dict[str, float] = {}
    asked: dict[str, float] = {}
    share: float | None = None
    overused: bool = False
    groups: dict[str, int] = {}
    half_bound: int = 0
    pods_waiting: int = 0
    pods_running: int = 0


def look(world: World, decider: Decider, configuration: Configuration) -> Session:
    """A session in which nothing is decided."""
    nobody: Any = None
    return Session(world, decider, configuration, PLUGINS, nobody, nobody)


def jobs_of(session: Session, name: str) -> list[JobView]:
    """The jobs of a queue in the order in which they are tried, then those that wait for nothing; it may be missing."""
    jobs = [job for job in session.world.jobs.values() if job.queue == name]
    waiting = sorted((job for job in jobs if _waits(job)), key=session.job_rank)
    others = sorted((job for job in jobs if not _waits(job)), key=lambda job: (job.created, job.key))
    return [_job_view(job) for job in (*waiting, *others)]


def overview(session: Session) -> list[QueueView]:
    """All queues, also those that jobs name and that are not there, by name."""
    world = session.world
    proportion = session.plugin(Proportion.name)
    deserved = proportion.deserved if isinstance(proportion, Proportion) else None
    found = []
    for queue in world.queues.values():
        view = _view(queue)
        if deserved is not None:
            mine = dict(deserved.get(queue.name, {}))
            overused = bool(queue.jobs) and session.overused(queue)
            view = msgspec.structs.replace(view, deserved=mine, share=share(queue.held, mine), overused=overused)
        found.append(view)
    for name in {job.queue for job in world.jobs.values()} - {"", *world.queues}:
        absent = Queue(name, jobs={key: job for key, job in world.jobs.items() if job.queue == name})
        found.append(msgspec.structs.replace(_view(absent), state=MISSING))
    return sorted(found, key=lambda view: view.name)


def _view(queue: Queue) -> QueueView:
    jobs = list(queue.jobs.values())
    return QueueView(
        name=queue.name,
        state=queue.state.value,
        weight=queue.weight,
        priority=queue.priority,
        reclaimable=queue.reclaimable,
        capability=dict(queue.capability),
        guarantee=dict(queue.guarantee),
        held=dict(queue.held),
        asked=dict(queue.asked),
        groups=dict(Counter(job.phase.value for job in jobs if job.words)),
        half_bound=sum(job.half_bound for job in jobs),
        pods_waiting=sum(job.waiting_count for job in jobs),
        pods_running=sum(job.ready_count - job.counts[Status.SUCCEEDED] for job in jobs),
    )


def _job_view(job: Job) -> JobView:
    return JobView(
        name=job.name,
        words=job.words,
        phase=job.phase.value,
        priority=job.priority,
        min_member=job.min_member,
        ready=job.ready_count,
        waiting=job.waiting_count,
        half_bound=job.half_bound,
        held=dict(job.held),
        asked=dict(job.asked),
    )


def _waits(job: Job) -> bool:
    return bool(job.waiting_count) or job.ready_count < job.min_member
