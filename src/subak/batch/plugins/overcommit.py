"""Lets in no more jobs than the cluster can serve soon.

    let in    if what jobs that were let in still lack + minResources <= total x factor - what pods hold,
              compared in the resources that minResources names

`overcommit-factor` is 1.2; below 1 it counts as 1.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from subak.batch import Plugin, Vote
from subak.batch.amounts import add, exceeding, minus, plus, times
from subak.batch.arguments import Arguments
from subak.batch.capacity import Capacity
from subak.batch.let_in import lacking
from subak.batch.session import Session
from subak.batch.wording import called, figure
from subak.batch.world import Job

FACTOR = "overcommit-factor"
USUAL_FACTOR = 1.2


class Overcommit(Plugin):
    """Keeps jobs back that would only wait."""

    name = "overcommit"
    arguments: ClassVar[Mapping[str, str]] = {
        FACTOR: "how many times what the cluster has may be promised (default 1.2, at least 1)"
    }

    def __init__(self, session: Session, arguments: Arguments) -> None:
        super().__init__(session, arguments)
        factor = arguments.number(FACTOR, USUAL_FACTOR)
        if factor < 1:
            arguments.doubts.append(
                f"{arguments.place}: argument {FACTOR} is {factor:g}, less than 1; {USUAL_FACTOR} is used"
            )
            factor = USUAL_FACTOR
        self.factor = factor
        self._capacity = session.snapshot.watched(Capacity)

    @cached_property
    def _room(self) -> dict[str, float]:
        """What may be promised beyond what pods hold."""
        return minus(times(self._capacity.total, self.factor), self._capacity.used())

    @cached_property
    def _promised(self) -> dict[str, float]:
        """What the jobs that were let in still lack."""
        promised: dict[str, float] = {}
        for queue in self.session.queues:
            for job in queue.jobs.values():
                add(promised, lacking(job))
        return promised

    def enqueueable(self, job: Job) -> Vote:
        wanted = job.min_resources
        if wanted is None:
            return Vote.PERMIT
        needed = plus(self._promised, wanted)
        short = exceeding(needed, self._room, among=wanted)
        if not short:
            return Vote.PERMIT
        name = short[0]
        self.session.note(
            job,
            "NotEnoughResources",
            f"resource in cluster is overused: insufficient {called(name)}: {figure(name, wanted[name])} asked, "
            f"{figure(name, max(self._room.get(name, 0) - self._promised.get(name, 0), 0))} left",
        )
        return Vote.REJECT

    def enqueued(self, job: Job) -> None:
        if "_promised" in self.__dict__:  # else it is counted when somebody first wants to know
            add(self._promised, lacking(job))
