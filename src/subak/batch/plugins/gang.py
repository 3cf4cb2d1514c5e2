"""Gang: a job starts with at least `min_member` tasks, and with so many of each role as it says, or not at all.

    valid      as many tasks are there, in whatever state but lost
    ready      as many have their places
    pipelined  as many have, or will have once others have left

Other than in Volcano, a task that asks for nothing counts only when it has a place.  Jobs that are not ready come
first.  A job gives tasks away only as long as enough are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from subak.batch import Plugin, Problem, Rank, Vote
from subak.batch.world import READY, WAITING, Job, Status, Task

NOT_ENOUGH_TASKS = "NotEnoughTasks"
NOT_ENOUGH_OF_ROLE = "NotEnoughPodsOfTask"
VALID = READY | WAITING
PLACED = READY | {Status.PIPELINED}


class Gang(Plugin):
    """Minimums of jobs."""

    name = "gang"

    def invalid(self, job: Job) -> Problem | None:
        """Too few pods are there."""
        if not _has_roles(job, VALID):
            return Problem(NOT_ENOUGH_OF_ROLE, "Not enough valid pods of each task for gang-scheduling")
        valid = job.ready_count + job.waiting_count
        if valid < job.min_member:
            message = f"Not enough valid tasks for gang-scheduling, valid: {valid}, min: {job.min_member}"
            return Problem(NOT_ENOUGH_TASKS, message)
        return None

    def job_rank(self, job: Job) -> Rank:
        """Those that are not ready first."""
        return job.ready_count >= job.min_member

    def ready(self, job: Job) -> bool:
        """Enough have their places."""
        return job.ready_count >= job.min_member and _has_roles(job, READY)

    def pipelined(self, job: Job) -> Vote:
        """Enough have, or will have, their places."""
        placed = job.ready_count + job.counts[Status.PIPELINED]
        return Vote.PERMIT if placed >= job.min_member and _has_roles(job, PLACED) else Vote.REJECT

    def starving(self, job: Job) -> bool:
        """Not even that."""
        return self.pipelined(job) is Vote.REJECT

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Of each job as many as it can do without."""
        return _spare(candidates)

    def reclaimable(self, reclaimer: Task, candidates: Sequence[Task]) -> list[Task]:
        """Of each job as many as it can do without."""
        return _spare(candidates)


def _has_roles(job: Job, statuses: Iterable[Status]) -> bool:
    """Whether enough tasks of each role have one of these statuses."""
    return not job.min_roles or all(job.role_count(role, statuses) >= least for role, least in job.minimums.items())


def _spare(candidates: Sequence[Task]) -> list[Task]:
    left: dict[str, int] = {}
    roles: Counter[tuple[str, str]] = Counter()
    spare: list[Task] = []
    for task in candidates:
        job, role = task.job, (task.job.key, task.role)
        least = job.minimums.get(task.role, 0)
        if left.setdefault(job.key, job.ready_count) > job.min_member and (
            job.role_count(task.role, READY) - roles[role] > least or not least
        ):
            left[job.key] -= 1
            roles[role] += 1
            spare.append(task)
    return spare
