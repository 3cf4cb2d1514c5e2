"""Priority: the most important first, jobs by their PriorityClass, tasks by that of their pods.

A job whose tasks are not all placed may take from less important jobs; a task from less important ones of its own job.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch import Plugin, Rank
from subak.batch.world import Job, Status, Task


class Priority(Plugin):
    """Ranks jobs and tasks, and names less important victims."""

    name = "priority"

    def job_rank(self, job: Job) -> Rank:
        """The higher, the earlier."""
        return -job.priority

    def task_rank(self, task: Task) -> Rank:
        """The higher, the earlier."""
        return -task.priority

    def starving(self, job: Job) -> bool:
        """Some task has no place, and none is kept for it."""
        return job.ready_count + job.counts[Status.PIPELINED] < len(job.tasks)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        """Tasks of less important jobs; in the same job, less important tasks."""
        return [
            each
            for each in candidates
            if (
                each.priority < preemptor.priority
                if each.job is preemptor.job
                else each.job.priority < preemptor.job.priority
            )
        ]
