"""How far a group is after a session: its phase, and the condition that says why, as Volcano writes them.

    Unknown     a task runs, and the group lacks others that it must have
    Running     enough tasks have their nodes; Completed if all of these have finished
    Inqueue     it has been let in
    Pending     it has not

A task counts as soon as its binding has been seen, and also while it leaves its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from subak.batch.plugins.gang import NOT_ENOUGH_OF_ROLE, NOT_ENOUGH_TASKS
from subak.batch.refusals import Shortfall
from subak.batch.session import Session
from subak.batch.trial import waiting
from subak.batch.world import FINISHED, Job, Phase, Status

UNSCHEDULABLE, SCHEDULED = "Unschedulable", "Scheduled"
"""Types of conditions."""

NOT_ENOUGH_RESOURCES = "NotEnoughResources"
READY_REASON = "tasks in gang are ready to be scheduled"
UNTRIED = Shortfall()

ON_A_NODE = (Status.BOUND, Status.RUNNING, *FINISHED)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a group: what, why; its status is True."""

    type: str
    reason: str
    message: str = ""


def phase(job: Job, unschedulable: bool = False) -> Phase:
    """The phase of a job; `unschedulable` says that it lacks tasks which it must have."""
    if unschedulable and job.counts[Status.RUNNING]:
        return Phase.UNKNOWN
    scheduled = job.count(*ON_A_NODE) + _leaving(job)
    if scheduled and scheduled >= job.min_member:
        return Phase.COMPLETED if scheduled == job.count(*FINISHED) else Phase.RUNNING
    return Phase.INQUEUE if job.phase is Phase.INQUEUE else Phase.PENDING


def condition(session: Session, job: Job) -> Condition | None:
    """What a session found out about a job; None if there is nothing to say."""
    note = session.notes.get(job.key)
    if note is not None and note.reason in (NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_ROLE):
        return Condition(UNSCHEDULABLE, note.reason, note.message)
    if session.ready(job):
        return Condition(SCHEDULED, READY_REASON)
    if _only_leaves(job):
        return None
    shortfall = session.shortfalls.get(job.key, UNTRIED)
    lacking = job.min_member - job.ready_count - shortfall.fitting
    message = f"{lacking}/{len(job.tasks)} tasks in gang unschedulable: {_summary(session, job, shortfall)}"
    return Condition(UNSCHEDULABLE, NOT_ENOUGH_RESOURCES, message)


def _leaving(job: Job) -> int:
    """How many tasks leave a node."""
    return sum(1 for task in job.with_status(Status.RELEASING) if task.node)


def _only_leaves(job: Job) -> bool:
    """Whether it lacks no more than tasks that leave, and nobody waits in their stead: that is no lack of room."""
    return not job.waiting_count and job.min_member <= job.ready_count + _leaving(job)


def _summary(session: Session, job: Job, shortfall: Shortfall) -> str:
    counts = {status.value: count for status, count in job.counts.items() if count}
    text = f"pod group is not ready, {_listed({**counts, 'minAvailable': job.min_member})}"
    pending = job.counts[Status.PENDING]
    if pending:
        missing = min(shortfall.missing, pending)
        fitting = min(shortfall.fitting, pending - missing)
        answers = {"Schedulable": fitting, "Unschedulable": missing, "Undetermined": pending - fitting - missing}
        text += f"; Pending: {_listed(Counter(answers))}"
    note = session.notes.get(job.key)
    if note is not None:
        return f"{text}. Origin reason is: {note.message}"
    if not shortfall.why:
        return text
    tasks = waiting(session, job)
    if not 0 <= shortfall.first < len(tasks):
        return f"{text}. Origin reason is: {shortfall.why}"
    return f"{text}. Origin reason is {tasks[shortfall.first].pod.name}: {shortfall.why}"


def _listed(counts: Mapping[str, int]) -> str:
    """Counts and names; Volcano sorts them as texts."""
    return ", ".join(sorted(f"{count} {name}" for name, count in counts.items() if count or name == "minAvailable"))
