"""A burst of pods on a real API server: who creates them, who watches them being bound, and what that costs.

The watcher is a client of its own.  It notes when it hears of a new pod, and when it hears that the pod has a node.
A scheduler also writes an event `Scheduled` for every pod, and may put that off until the pods are bound.  So it is
noted too how many events were there by then, and when the last one came.
"""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from bench.cluster import Usage
from bench.samples import Samples, summary
from tinykube.client import Client
from tinykube.codec import Metadata
from tinykube.reflector import Reflector
from tinykube.resource import EVENTS, PODS

QUIET = 5.0
"""If no event is written for so many seconds, there will be no more."""
SILENCE = 60.0
"""If no pod is bound for so many seconds, the scheduler has stopped."""


class Stalled(click.ClickException):
    """The scheduler binds no more pods."""


class Spec(msgspec.Struct, rename="camel"):
    """Where a pod is."""

    node_name: str = ""


class Seen(msgspec.Struct):
    """What the watcher reads of a pod."""

    metadata: Metadata
    spec: Spec


class Told(msgspec.Struct):
    """What the watcher reads of an event."""

    metadata: Metadata


class Watcher:
    """When each of `count` pods was first seen, and when it was first seen with a node, by name; and the events."""

    def __init__(self, client: Client, count: int) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self.told: list[float] = []
        self._count = count
        self._progress = asyncio.Event()
        self._pods = Reflector(client, PODS, Seen, self._see, namespace="default")
        self._events = Reflector(client, EVENTS, Told, self._hear, namespace="default", fields="reason=Scheduled")

    def _hear(self, change: str, event: Told) -> None:
        self.told.append(time.perf_counter())
        self._progress.set()

    def _see(self, change: str, pod: Seen) -> None:
        name, now = pod.metadata.name, time.perf_counter()
        self.created.setdefault(name, now)
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = now
            self._progress.set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch, from an empty list on."""
        running = [asyncio.create_task(each.run()) for each in (self._pods, self._events)]
        try:
            await self._pods.synced.wait()
            await self._events.synced.wait()
            assert not self._pods.objects, "pods of an earlier burst are left"
            assert not self._events.objects, "events of an earlier burst are left"
            yield
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def all_bound(self) -> None:
        """Wait until every pod has a node.  Raises Stalled if for long none gets one."""
        while len(self.bound) < self._count:
            self._progress.clear()
            try:
                async with asyncio.timeout(SILENCE):
                    await self._progress.wait()
            except TimeoutError:
                done = f"{len(self.bound):,} of {self._count:,} pods are bound"
                raise Stalled(f"{done}, and no further one for {SILENCE:.0f} s") from None

    async def all_told(self) -> None:
        """Wait until every pod has its event, or no further one comes: a scheduler may drop some."""
        with suppress(TimeoutError):
            while len(self.told) < self._count:
                self._progress.clear()
                async with asyncio.timeout(QUIET):
                    await self._progress.wait()

    def waits(self) -> Samples:
        """Seconds from creation to binding."""
        return summary(array("d", [self.bound[name] - created for name, created in self.created.items()]))


@dataclass(frozen=True)
class Burst:
    """What came of a burst: how long it took until all pods were bound, and until all were created, in seconds.

    `told` is how long it took until the last event was written, `told_early` and `told_at_last` how many were there
    when the last pod was bound, and at the end.  By process the seconds of CPU time until then, and the peak of memory.
    """

    pods: int
    seconds: float
    creating: float
    told: float
    told_early: int
    told_at_last: int
    waits: Samples
    cpu: Mapping[str, float]
    memory_mib: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Pods bound in a second."""
        return self.pods / self.seconds

    @property
    def rate_with_events(self) -> float:
        """Pods bound in a second, if a pod counts only when the events are written too."""
        return self.pods / max(self.seconds, self.told)


@asynccontextmanager
async def creator(kubeconfig: Path, count: int, scheduler: str, resource: str) -> AsyncIterator[Process]:
    """The process that creates the pods, once it waits for the word to begin."""
    command = (sys.executable, "-m", "bench.creator", str(kubeconfig), str(count), scheduler, resource)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n", "the creator of pods has ended"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def burst(
    kubeconfig: Path, looker: Client, count: int, scheduler: str, resource: str, processes: Mapping[str, Usage]
) -> Burst:
    """Create pods as fast as the server takes them, and wait until all are bound."""
    watcher = Watcher(looker, count)
    async with watcher.watching(), creator(kubeconfig, count, scheduler, resource) as process:
        before = {name: each.cpu for name, each in processes.items()}
        began = time.perf_counter()
        await process.communicate(b"\n")
        if process.returncode:
            raise click.ClickException("the pods could not be created; the reason is above")
        creating = time.perf_counter() - began
        await watcher.all_bound()
        await watcher.all_told()
        spent = {name: each.cpu - before[name] for name, each in processes.items()}
    last = max(watcher.bound.values())
    told, early = max(watcher.told, default=last), sum(each <= last for each in watcher.told)
    memory = {name: each.memory_mib for name, each in processes.items()}
    return Burst(count, last - began, creating, told - began, early, len(watcher.told), watcher.waits(), spent, memory)
