"""Dominant resource fairness: who has the least comes first.

    share(job) = max over all resources of the cluster: what the job holds / what there is

Jobs with a smaller share come first.  A victim may leave if its job is then still no poorer than the preemptor's job is
with its new task; victims of one job add up.

Volcano can weigh whole trees of queues (`enableHierarchy`).  That is not honoured, and `batch.parser` warns of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.batch import Plugin, Rank
from subak.batch.amounts import add, largest_part, plus
from subak.batch.arguments import Arguments
from subak.batch.capacity import Capacity
from subak.batch.session import Session
from subak.batch.world import Job, Task

SLIGHT = 1e-6
"""Shares that differ by no more are equal."""


class Drf(Plugin):
    """Gives to the job that has least."""

    name = "drf"

    def __init__(self, session: Session, arguments: Arguments) -> None:
        super().__init__(session, arguments)
        self._total = session.snapshot.watched(Capacity).total

    def share(self, job: Job) -> float:
        """The largest part of any resource of the cluster that the job holds."""
        return largest_part(job.held, self._total)

    def job_rank(self, job: Job) -> Rank:
        return self.share(job)

    def preemptable(self, preemptor: Task, candidates: Sequence[Task]) -> list[Task]:
        mine = largest_part(plus(preemptor.job.held, preemptor.amounts), self._total)
        left: dict[str, dict[str, float]] = {}
        victims: list[Task] = []
        for task in candidates:
            holds = left.setdefault(task.job.key, dict(task.job.held))
            add(holds, task.amounts, -1)
            if mine <= largest_part(holds, self._total) + SLIGHT:
                victims.append(task)
        return victims
