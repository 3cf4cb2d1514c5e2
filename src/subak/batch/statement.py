"""Tentative decisions about one job, which count together or not at all.

Within the block of `Session.statement` the snapshot and the world are as if they were carried out.  At its end the
snapshot is rolled back in any case: `commit` and `keep` let the hand do it for good, which books the same again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from subak.batch import Hand
from subak.batch.world import Job, Status, Task, World
from subak.model.placement import Placement
from subak.snapshot.cluster import Booking, Snapshot


@dataclass(frozen=True, slots=True)
class Step:
    """A task that changed its status.  `booking` is what it held, if it no longer does."""

    task: Task
    before: Status
    node: str
    placement: Placement | None = None
    victim_of: Task | None = None
    event: str = ""
    booking: Booking | None = None

    @property
    def held(self) -> Placement | None:
        """The place that it had."""
        return None if self.booking is None else self.booking.placement


class Statement:
    """The decisions so far.  `frees` says that the trial has room which is taken outside of it."""

    def __init__(self, world: World, snapshot: Snapshot, job: Job) -> None:
        self.job = job
        self.kept = False
        self.frees = False
        self._world = world
        self._snapshot = snapshot
        self._steps: list[Step] = []
        self._binds = False

    def __len__(self) -> int:
        return len(self._steps)

    def allocate(self, task: Task, placement: Placement) -> None:
        """The task gets its place, which is free."""
        self._enter(Step(task, task.status, task.node, placement), Status.ALLOCATED, placement.node)
        self._snapshot.assume(task.key, placement, task.request.needs.resources, task.pod)

    def pipeline(self, task: Task, placement: Placement) -> None:
        """The task gets its place once others have left.

        As long as they are in the trial, what both take is booked twice on paper: so nobody else gets it.
        """
        self._enter(Step(task, task.status, task.node, placement), Status.PIPELINED, placement.node)
        self._snapshot.restore(task.key, placement, task.request.needs.resources, pod=task.pod)

    def evict(self, victim: Task, preemptor: Task, event: str) -> None:
        """The victim leaves."""
        booking = self._snapshot.forget(victim.key)
        step = Step(victim, victim.status, victim.node, None, preemptor, event, booking)
        self._enter(step, Status.RELEASING, victim.node)
        self.frees = True

    def without(self, keys: Iterable[str]) -> None:
        """These pods leave anyway: the trial goes on without them."""
        for key in keys:
            self._snapshot.forget(key)
        self.frees = True

    def release(self, task: Task) -> Placement | None:
        """The place that is kept for a task is free for others, or for the task itself; returns which it was."""
        booking = self._snapshot.forget(task.key)
        self._enter(Step(task, task.status, task.node, booking=booking), Status.PENDING, "")
        self.frees = True
        return None if booking is None else booking.placement

    def take_back(self, task: Task) -> None:
        """As if the last decision about this task had not been made."""
        at = max(i for i, step in enumerate(self._steps) if step.task is task)
        step = self._steps.pop(at)
        self._snapshot.forget(task.key)
        if step.booking is not None:
            self._snapshot.put_back(task.key, step.booking)
        self._world.move(task, step.before)
        task.node = step.node

    def commit(self) -> None:
        """Carry out everything: allocated tasks are bound."""
        self.kept = self._binds = True

    def keep(self) -> None:
        """Carry out everything, but bind nobody: all places are kept until there is room for the whole job."""
        self.kept = True

    def undo(self) -> None:
        """Take back what the world knows of it."""
        for step in reversed(self._steps):
            self._world.move(step.task, step.before)
            step.task.node = step.node
        self._steps.clear()

    def carry_out(self, hand: Hand) -> bool:
        """Let the hand do it, after the snapshot was rolled back: those who give up a place first.

        Returns whether anybody leaves a place.
        """
        places = {step.task.key: step.placement for step in self._steps if step.placement is not None}
        bound = {key for key in places if self._binds and self.job.tasks[key].status is Status.ALLOCATED}
        frees = False
        for step in self._steps:
            if step.victim_of is not None:
                hand.evict(step.task, step.victim_of, step.event)
                frees = True
            elif step.placement is None and places.get(step.task.key) != step.held:
                # Others of the job may get what it held, and be bound before it.
                hand.drop(step.task, "its place is needed elsewhere")
                frees = True
        held = {step.task.key: step.held for step in self._steps if step.placement is None}
        for step in self._steps:
            if step.placement is None:
                continue
            if step.task.key in bound:
                hand.bind(step.task, step.placement)
                continue
            self._world.move(step.task, Status.PIPELINED)
            if step.placement != held.get(step.task.key):  # else it is kept already
                hand.keep(step.task, step.placement)
        return frees

    def _enter(self, step: Step, status: Status, node: str) -> None:
        self._steps.append(step)
        self._world.move(step.task, status)
        step.task.node = node
