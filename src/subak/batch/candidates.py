"""Tasks that may have to leave for others, by node, with how important they are.

    weight    the queue's priority, then the job's, then the task's own

They run or are about to, and their users let them be taken.  Who of them may go for whom, the plugins say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from subak.batch.world import Job, Status, Task, World
from subak.model.request import Request
from subak.policy.victims import started

TAKEABLE = frozenset({Status.BOUND, Status.RUNNING})
"""Tasks that can be evicted.  One that is being bound may still be refused: it is left alone until that is known."""

MOST_ON_A_NODE = 256
"""So many tasks of a node are candidates, the least important ones."""

BITS = 33
"""Enough for a priority with its sign."""

OFFSET = 1 << (3 * BITS)
"""Added to each weight, so that two tasks of a negative weight cost more than one."""


class Candidates:
    """The candidates among some jobs, as they were when this was made; those who have left since are passed over.

    `hopeful` are the nodes worth a look for a request, once somebody has found out.
    """

    def __init__(self, world: World, jobs: Iterable[Job]) -> None:
        self.tasks: dict[str, Task] = {}
        self.weights: dict[str, int] = {}
        self.hopeful: dict[Request, Sequence[str]] = {}
        self._on: dict[str, list[Task]] = {}
        for job in jobs:
            if not job.count(*TAKEABLE):
                continue
            weight = OFFSET + (((world.queues[job.queue].priority << BITS) + job.priority) << BITS)
            for task in job.with_status(*TAKEABLE):
                if task.preemptable:
                    self.tasks[task.key] = task
                    self.weights[task.key] = weight + task.priority
                    self._on.setdefault(task.node, []).append(task)
        self._sorted: set[str] = set()

    @cached_property
    def nodes(self) -> list[str]:
        """The nodes that have any, those with the least important ones first."""
        lowest = {name: min(self.weights[task.key] for task in tasks) for name, tasks in self._on.items()}
        return sorted(lowest, key=lambda name: (lowest[name], name))

    @cached_property
    def highest(self) -> int:
        """The highest priority that any of their pods has."""
        return max((task.pod.priority for task in self.tasks.values()), default=0)

    def on(self, node: str) -> list[Task]:
        """Those of a node, the least important first; of equals the one that was started last."""
        tasks = self._on.get(node, [])
        if node not in self._sorted:
            self._sorted.add(node)
            tasks.sort(key=lambda task: (-self.weights[task.key], started(task.pod), task.key), reverse=True)
        return [task for task in tasks if task.status in TAKEABLE][:MOST_ON_A_NODE]
