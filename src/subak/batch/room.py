"""Room for the tasks of one job, which others have to leave: as few and as unimportant ones as can be found.

    free now ── free once pods have left that leave anyway ── the cheapest victims (`batch.takings`) ── nowhere

A gang takes room task by task within one statement, so it is made for the whole gang or not at all.  After each task
the plugins are asked anew: a job gives only as long as it has enough itself.  At the end victims are taken back, the
most important first, if all tasks have places without their leaving: somebody who left for a later task may have made
an earlier victim needless.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subak.batch.candidates import Candidates
from subak.batch.session import Session
from subak.batch.statement import Statement
from subak.batch.takings import Takings, Terms
from subak.batch.world import Job, Task
from subak.model.placement import Placement
from subak.policy.preempt import MOST_LOOKS
from subak.policy.victims import Occupant

NEVER = "Never"
"""The preemptionPolicy of pods for which nobody has to leave."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A task that leaves, and for whom."""

    task: Task
    taker: Task
    occupant: Occupant


class Room:
    """Makes room for a job's tasks within its statement.

    `victims` are those who leave for it, the places of `placed` are free once they have.  `waits` tells that a place is
    free only after others have left, be it victims or pods that leave anyway.
    """

    def __init__(self, session: Session, statement: Statement, takings: Takings) -> None:
        self.victims: list[Victim] = []
        self.placed: dict[Task, Placement] = {}
        self.waits = False
        self._session = session
        self._snapshot = session.snapshot
        self._statement = statement
        self._queue = session.world.queues[statement.job.queue]
        self._takings = takings
        self._settled = self._without_leaving = False

    def find(self, task: Task) -> bool:
        """Give the task a place, and send away whom that takes; False if there is none."""
        placement = self._anywhere(task)
        if placement is None and self._settle():
            placement = self._anywhere(task)
        if placement is not None:
            self.waits |= self._without_leaving
            self._put(task, placement)
            return True
        plan = None if task.pod.spec.preemption_policy == NEVER else self._takings.plan(task)
        if plan is None:
            return False
        self.waits = True
        for occupant in plan.victims:
            victim = Victim(self._takings.candidates.tasks[occupant.key], task, occupant)
            self.victims.append(victim)
            self._evict(victim)
        self._put(task, plan.placement)
        return True

    def spare(self) -> None:
        """Take back those without whose leaving all tasks have places too."""
        for victim in sorted(self.victims, key=lambda each: each.occupant.rank):
            if self._needless(victim):
                self.victims.remove(victim)

    def _settle(self) -> bool:
        """Go on as if those had left who leave anyway; False if nobody does, or that was done."""
        if self._settled:
            return False
        self._settled = True
        pods = self._session.pods
        leaving = [key for name in sorted(pods.unsettled())[:MOST_LOOKS] for key in pods.leaving(name)]
        self._statement.without(leaving)
        self._without_leaving = bool(leaving)
        return self._without_leaving

    def _anywhere(self, task: Task) -> Placement | None:
        """A place that is free in the trial."""
        if self._session.unallocatable(self._queue, task):
            return None
        return self._session.place(task)

    def _put(self, task: Task, placement: Placement) -> None:
        self._statement.pipeline(task, placement)
        self.placed[task] = placement
        self._takings.changed(placement.node)

    def _take(self, task: Task) -> None:
        self._statement.take_back(task)
        self._takings.changed(self.placed.pop(task).node)

    def _evict(self, victim: Victim) -> None:
        self._statement.evict(victim.task, victim.taker, self._takings.terms.event)
        self._takings.taken(victim.occupant)

    def _needless(self, victim: Victim) -> bool:
        """Let the victim stay if all tasks have places nevertheless; else all is as before."""
        before = dict(self.placed)
        moved = [task for task, place in before.items() if place.node == victim.task.node] or [next(reversed(before))]
        self._statement.take_back(victim.task)
        self._takings.taken(victim.occupant, -1)
        for task in moved:
            self._take(task)
        if self._fit(moved) and self._hold(task for task in before if task not in moved):
            return True
        for task in moved:
            if task in self.placed:
                self._take(task)
        self._evict(victim)
        for task in moved:
            self._put(task, before[task])
        return False

    def _fit(self, tasks: Iterable[Task]) -> bool:
        """Give the tasks places that are free in the trial, as long as there are any."""
        for task in tasks:
            placement = self._anywhere(task)
            if placement is None:
                return False
            self._put(task, placement)
        return True

    def _hold(self, tasks: Iterable[Task]) -> bool:
        """Whether these may still be where they are: rules across nodes and quotas look at those who stay, too."""
        for task in tasks:
            with self._snapshot.transaction():
                self._snapshot.forget(task.key)
                if self._session.place_at(task, self.placed[task]) is None:
                    return False
        return True


def make_room(session: Session, job: Job, tasks: Sequence[Task], candidates: Candidates, terms: Terms) -> bool:
    """Try to get places for tasks of a job, as many as it takes; False if nothing came of it, and nothing changed."""
    takings = Takings(session, session.world.queues[job.queue], candidates, terms)
    takings.look(task.request for task in tasks)
    with session.statement(job) as statement:
        room = Room(session, statement, takings)
        failed = set()
        for task in tasks:
            if not session.starving(job):
                break
            if task.request not in failed and not room.find(task):
                failed.add(task.request)
        if room.waits and session.pipelined(job):
            room.spare()
            statement.keep()
            return True
    return False
