"""What is known to fit nowhere, so that nobody tries it again before something has changed.

    request   no node takes it: all tasks that ask for the same are refused
    shape     each task of a gang may fit alone, but not enough of them together: so for all gangs of the same requests
    job       it has been tried, and nothing of it has changed since

Who keeps this between sessions calls `clear` when anything on a node or of a quota was freed or has changed, or a pod
begins to leave; and `see` with the snapshot's other changes, which cure refusals by filters that look at other pods.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from subak.batch.world import Job
from subak.model.request import Request

Cures = frozenset[Hashable]
"""Changes after which a refusal may no longer hold."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """How far the trial of a job came.

    So many of its tasks had places together, so many are known to have none.  `first` is the position of the first of
    these in the order of tasks, -1 if there is none, and `why` is what nodes say to it.
    """

    fitting: int = 0
    missing: int = 0
    first: int = -1
    why: str = ""


class Refusals:
    """Requests, shapes of gangs, and jobs."""

    def __init__(self) -> None:
        self._requests: dict[Request, tuple[str, Cures]] = {}
        self._shapes: dict[Hashable, tuple[Shortfall, Cures]] = {}
        self._jobs: dict[str, tuple[int, int, Shortfall, Cures]] = {}

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def __len__(self) -> int:
        return len(self._requests) + len(self._shapes) + len(self._jobs)

    def clear(self) -> None:
        """Everything may fit again."""
        self._requests.clear()
        self._shapes.clear()
        self._jobs.clear()

    def see(self, changes: Collection[Hashable]) -> None:
        """What these changes cure may fit again."""
        _drop(self._requests, changes)
        _drop(self._shapes, changes)
        _drop(self._jobs, changes)

    def refuse(self, request: Request, why: str, cures: Cures) -> None:
        """The request fits on no node, nor will it once those have left who leave."""
        self._requests[request] = why, cures

    def why(self, request: Request) -> str:
        """What nodes said to a refused request."""
        return self._requests[request][0]

    def refuse_shape(self, shape: Hashable, shortfall: Shortfall, cures: Iterable[Cures]) -> None:
        """A gang of this shape does not get enough places."""
        self._shapes[shape] = shortfall, Cures().union(*cures)

    def shape(self, shape: Hashable) -> Shortfall | None:
        """How far a gang of this shape came; None if it is worth a trial."""
        known = self._shapes.get(shape)
        return None if known is None else known[0]

    def refuse_job(self, job: Job, shortfall: Shortfall, cures: Iterable[Cures]) -> None:
        """The job as it is now gets no further."""
        self._jobs[job.key] = job.version, job.min_member, shortfall, Cures().union(*cures)

    def job(self, job: Job) -> Shortfall | None:
        """How far the job came; None if it is worth a trial."""
        known = self._jobs.get(job.key)
        return known[2] if known is not None and known[:2] == (job.version, job.min_member) else None


def _drop(known: dict[Any, Any], changes: Collection[Hashable]) -> None:
    """Forget refusals, which end with their cures, that one of these changes cures."""
    for key in [key for key, value in known.items() if not value[-1].isdisjoint(changes)]:
        del known[key]
