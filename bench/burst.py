"""A burst of pods on a real API server: who creates them, who watches them being bound, and what that costs.

The watcher is a client of its own.  It notes when it hears of a new pod, and when it hears that the pod has a node.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import click
import msgspec

from bench.cluster import Usage
from bench.fleet import create_pods, pod
from bench.samples import Samples, summary
from tinykube.client import Client
from tinykube.codec import Metadata
from tinykube.reflector import Reflector
from tinykube.resource import PODS

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


class Watcher:
    """When each of `count` pods was first seen, and when it was first seen with a node; by name."""

    def __init__(self, client: Client, count: int) -> None:
        self.created: dict[str, float] = {}
        self.bound: dict[str, float] = {}
        self._count = count
        self._progress = asyncio.Event()
        self._pods = Reflector(client, PODS, Seen, self._see, namespace="default")

    def _see(self, change: str, pod: Seen) -> None:
        name, now = pod.metadata.name, time.perf_counter()
        self.created.setdefault(name, now)
        if pod.spec.node_name and name not in self.bound:
            self.bound[name] = now
            self._progress.set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch, from an empty list on."""
        running = asyncio.create_task(self._pods.run())
        try:
            await self._pods.synced.wait()
            assert not self._pods.objects, "pods of an earlier burst are left"
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

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

    def waits(self) -> Samples:
        """Seconds from creation to binding."""
        return summary(array("d", [self.bound[name] - created for name, created in self.created.items()]))


@dataclass(frozen=True)
class Burst:
    """What came of a burst: how long it took until all pods were bound, and until all were created, in seconds.

    By process the seconds of CPU time and the peak of memory.
    """

    pods: int
    seconds: float
    creating: float
    waits: Samples
    cpu: Mapping[str, float]
    memory_mib: Mapping[str, int]

    @property
    def rate(self) -> float:
        """Pods bound in a second."""
        return self.pods / self.seconds


async def burst(
    creator: Client, looker: Client, count: int, scheduler: str, resource: str, processes: Mapping[str, Usage]
) -> Burst:
    """Create pods as fast as the server takes them, and wait until all are bound."""
    watcher = Watcher(looker, count)
    async with watcher.watching():
        before = {name: each.cpu for name, each in processes.items()}
        began = time.perf_counter()
        await create_pods(creator, (pod(f"p{number}", scheduler, resource) for number in range(count)))
        creating = time.perf_counter() - began
        await watcher.all_bound()
        spent = {name: each.cpu - before[name] for name, each in processes.items()}
    seconds = max(watcher.bound.values()) - began
    return Burst(
        count, seconds, creating, watcher.waits(), spent, {name: each.memory_mib for name, each in processes.items()}
    )
