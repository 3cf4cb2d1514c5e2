"""Other schedulers that serve names of ours, known by the Leases that they hold.

HAMi's, Volcano's and Koordinator's schedulers each hold a Lease (`served.OWN_LEASES`), in whichever namespace they were
installed.  While it is renewed, the name is theirs and we leave its pods alone.  So it is with Volcano's controllers,
which make PodGroups and set the states of queues.

A Lease lives while its renewals come within its duration, by our own clock.  One that we see for the first time is
believed to live for one duration: two schedulers for one pod are worse than a pod that waits some seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tinykube.client import Client
from tinykube.lease import Lease
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import LEASES

DURATION = 15.0
"""Seconds that a Lease lives if it does not say so itself."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """What is said of a name: who holds its Lease, what is logged when it is taken, and when it is free again."""

    holds: str
    taken: str
    free: str


SCHEDULERS = Words(
    "its own scheduler holds lease",
    "pods of scheduler %s are left alone: %s",
    "pods of scheduler %s are served now: no other scheduler holds a live lease",
)
CONTROLLERS = Words(
    "its controllers hold lease",
    "PodGroups of owners and states of queues are left to %s: %s",
    "PodGroups of owners and states of queues are ours now: no controllers of %s hold a live lease",
)
CONTROLLER_LEASES = {"volcano": "vc-controller-manager"}
"""The Lease of Volcano's controller manager, in the namespace where it was installed."""


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a Lease: who renewed it, and until when it counts."""

    holder: str
    renewed: str | None
    until: float


class Rivals:
    """Watches Leases; `leases` gives the one of each name.  `on_change` gets the names that are taken, with why."""

    def __init__(
        self,
        client: Client,
        leases: Mapping[str, str],
        on_change: Callable[[Mapping[str, str]], None],
        words: Words = SCHEDULERS,
    ) -> None:
        self._on_change = on_change
        self._words = words
        self._signs: dict[str, dict[str, Sign]] = {name: {} for name in leases}
        self._taken: dict[str, str] = {}
        self._news = asyncio.Event()
        self.reflectors = tuple(
            Reflector(client, LEASES, Lease, partial(self._see, name), fields=f"metadata.name={lease}")
            for name, lease in leases.items()
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            while True:
                self._news.clear()
                ends = self._look()
                try:
                    async with asyncio.timeout_at(ends):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def complete(self) -> None:
        """Wait until all Leases that exist at the start are known, and `on_change` was told of them."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        self._look()

    def _see(self, name: str, change: str, lease: Lease) -> None:
        key, spec = f"{lease.metadata.namespace}/{lease.metadata.name}", lease.spec
        known = self._signs[name].get(key)
        if change == DELETED or not spec.holder_identity:
            self._signs[name].pop(key, None)
        elif known is None or (known.holder, known.renewed) != (spec.holder_identity, spec.renew_time):
            until = _now() + float(spec.lease_duration_seconds or DURATION)
            self._signs[name][key] = Sign(spec.holder_identity, spec.renew_time, until)
        self._news.set()

    def _look(self) -> float | None:
        """Tell whose names are taken if that has changed; gives the time at which it may change next."""
        now = _now()
        living = {
            name: {key: sign for key, sign in signs.items() if sign.until > now} for name, signs in self._signs.items()
        }
        taken = {
            name: f"{self._words.holds} {key} ({sign.holder})"
            for name, signs in living.items()
            for key, sign in sorted(signs.items())[:1]
        }
        if taken != self._taken:
            for name in sorted(taken.keys() - self._taken.keys()):
                log.warning(self._words.taken, name, taken[name])
            for name in sorted(self._taken.keys() - taken.keys()):
                log.warning(self._words.free, name)
            self._taken = taken
            self._on_change(taken)
        return min((sign.until for signs in living.values() for sign in signs.values()), default=None)


def _now() -> float:
    return asyncio.get_running_loop().time()
