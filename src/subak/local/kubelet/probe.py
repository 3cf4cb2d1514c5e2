"""Probes: whether a container has started, lives, and is ready.

A result counts when it has come as often in a row as its threshold says.  The other two probes wait until the startup
probe has succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from subak.local.kubelet.action import Result
from subak.local.kubelet.pod import Container, Probe


class Kind(StrEnum):
    """The kinds of probes, as messages name them."""

    STARTUP = "Startup"
    LIVENESS = "Liveness"
    READINESS = "Readiness"


@dataclass(slots=True)
class Streak:
    """Results in a row."""

    success_threshold: int
    failure_threshold: int
    last: bool | None = None
    run: int = 0

    def count(self, good: bool) -> bool:
        """Take in a result; True if it counts now."""
        self.run = self.run + 1 if good is self.last else 1
        self.last = good
        return self.run >= (self.success_threshold if good else self.failure_threshold)


Check = Callable[[Probe], Awaitable[Result]]
Report = Callable[[Kind, Probe, Result, bool], bool]
"""Takes a result and whether it counts; False ends the probe."""


def probes(container: Container) -> dict[Kind, Probe]:
    """The probes that a container has."""
    found = {
        Kind.STARTUP: container.startup_probe,
        Kind.LIVENESS: container.liveness_probe,
        Kind.READINESS: container.readiness_probe,
    }
    return {kind: probe for kind, probe in found.items() if probe is not None}


def unserved(container: Container, real: bool) -> str:
    """A remark on probes that are not carried out; empty if all are."""
    wanted = probes(container)
    if wanted and not real:
        return "a stand-in is not probed: it counts as started, alive and ready"
    skipped = [kind for kind, probe in wanted.items() if probe.grpc]
    if skipped:
        return f"{' and '.join(skipped)} probe of kind grpc is not served here: it counts as passed"
    return ""


async def watch(container: Container, check: Check, report: Report) -> None:
    """Probe a container that has just started, until cancelled."""
    wanted = probes(container)
    startup = wanted.pop(Kind.STARTUP, None)
    if startup is not None:
        await _repeat(Kind.STARTUP, startup, startup.initial_delay_seconds, check, report)
    async with asyncio.TaskGroup() as group:
        for kind, probe in wanted.items():
            # The delay counts from the start of the container, most of which a startup probe has used up.
            delay = 0 if startup else probe.initial_delay_seconds
            group.create_task(_repeat(kind, probe, delay, check, report))


async def _repeat(kind: Kind, probe: Probe, delay: float, check: Check, report: Report) -> None:
    streak = Streak(probe.success_threshold, probe.failure_threshold)
    await asyncio.sleep(delay)
    while True:
        result = await check(probe)
        counts = streak.count(result.good)
        if not report(kind, probe, result, counts):
            return
        await asyncio.sleep(probe.period_seconds)
