"""A whole cluster in one process: pods per second until they run, memory, restart after a kill, wake-up of waiters.

It runs `subak up --state` with simulated nodes of eight cards, and the runtime that starts nothing.  Another process
creates pods in four dialects over HTTPS, 32 at a time, and waits until all of them run.  In the middle the
cluster is killed and started again.  Then a third of the pods leaves and as many come.  At the end it checks the
invariants in the API server: exactly the pods that were created and not deleted exist, each holds a card, and no card
holds more than it can.

The table shows the server's CPU time beside wall time, because machines are noisy and the client shares the processors.
Wake-ups are measured on a small cluster that runs real processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.printed import say, show, table
from bench.samples import Samples, summary
from subak.cli.live import picture
from tests.support.live import Live, live
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.codec import WatchEvent
from tinykube.http import HttpTransport
from tinykube.resource import PODS
from tinykube.status import ApiError
from tinykube.wait import condition, until

AT_ONCE = 32
PATIENCE = 600.0

HARDWARE = """
nodes:
- {{profile: shared, name: nvidia, count: {nvidia}, taints: [], cards: {{count: 8}}}}
- {{profile: moore-threads, name: mthreads, count: {mthreads}}}
"""
SMALL = "nodes: [{profile: volcano, cards: {count: 1}}]"

SHAPES: tuple[dict[str, Any], ...] = (
    {"volcano.sh/gpu-memory": 1_024},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2_000, "nvidia.com/gpucores": 10},
    {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-core": 10, "koordinator.sh/gpu-memory-ratio": 10},
    {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 8, "mthreads.com/sgpu-core": 2},
)
WHOLE = {"volcano.sh/gpu-memory": 11_178}


@dataclass(frozen=True)
class Usage:
    """The kernel's counters of a process."""

    pid: int

    @property
    def cpu(self) -> float:
        """Seconds of CPU time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_mib(self) -> int:
        """Peak memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def varied(number: int) -> dict[str, Any]:
    """What the pod with this number asks for; CPU and memory vary too."""
    plain = {"cpu": f"{50 + number * 7 % 200}m", "memory": f"{64 + number * 11 % 300}Mi"}
    return SHAPES[number % len(SHAPES)] | plain


def pod(name: str, limits: dict[str, Any]) -> dict[str, Any]:
    """A small pod."""
    container = {"name": "c", "image": "busybox", "command": ["sleep", "infinity"], "resources": {"limits": limits}}
    metadata, spec = {"name": name}, {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def connect(cluster: Live) -> Client:
    """A client for a cluster."""
    return Client(HttpTransport(kubeconfig.load(cluster.kubeconfig)))


@dataclass
class Stopwatch:
    """When each pod was requested, and when it was seen running; by name."""

    asked: dict[str, float] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)

    def waits(self) -> Samples:
        """Seconds from the request until the pod runs."""
        return summary(array("d", [self.running[name] - asked for name, asked in self.asked.items()]))


async def create(client: Client, numbers: range, watch: Stopwatch) -> None:
    """Create pods; requests whose answer was lost are sent again."""
    crowd = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with crowd:
            name = f"p{number}"
            watch.asked[name] = time.perf_counter()
            while True:
                try:
                    await client.create(PODS, pod(name, varied(number)), "default")
                    return
                except ApiError as error:
                    if error.reason == "AlreadyExists":
                        return
                    raise
                except (OSError, TimeoutError):
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(one(number) for number in numbers))


async def delete(client: Client, numbers: range) -> None:
    """Delete pods."""
    crowd = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with crowd:
            await client.delete(PODS, f"p{number}", "default")

    await asyncio.gather(*(one(number) for number in numbers))


async def follow(events: AsyncIterator[object], watch: Stopwatch, coming: range, leaving: range) -> None:
    """Wait until all coming pods run, and all leaving pods are gone."""
    missing, staying = {f"p{number}" for number in coming}, {f"p{number}" for number in leaving}
    async with asyncio.timeout(PATIENCE):
        while missing or staying:
            event = await anext(events)
            if isinstance(event, WatchEvent):
                name = event.object["metadata"]["name"]
                if event.type == "DELETED":
                    staying.discard(name)
                elif name in missing:
                    missing.discard(name)
                    watch.running[name] = time.perf_counter()


async def load(cluster: Live, coming: range, leaving: range = range(0)) -> dict[str, int | float]:
    """Create and delete pods, and wait until the new ones run and the others are gone."""
    client, usage, watch, running = connect(cluster), Usage(cluster.process.pid), Stopwatch(), "status.phase=Running"
    listing = await client.list(PODS, fields=running)
    events = await client.watch(PODS, revision=listing.revision, fields=running)
    began, cpu = time.perf_counter(), usage.cpu
    following = asyncio.create_task(follow(events, watch, coming, leaving))
    await delete(client, leaving)
    await create(client, coming, watch)
    await following
    seconds, spent = time.perf_counter() - began, usage.cpu - cpu
    await client.close()
    waits = watch.waits()
    return {
        "came": len(coming),
        "left": len(leaving),
        "running/s": len(coming) / seconds,
        "server CPU, ms a pod": spent / len(coming) * 1e3,
        "created to running, p50 ms": waits.p50 * 1e3,
        "p99 ms": waits.p99 * 1e3,
        "worst ms": waits.worst * 1e3,
        "memory, MiB": usage.memory_mib,
    }


async def check(cluster: Live, numbers: Iterable[int]) -> None:
    """Check that exactly these pods exist, each holds a card, and no card holds more than it can."""
    client = connect(cluster)
    now = await picture(client)
    await client.close()
    assert set(now.pods) == {f"default/p{number}" for number in numbers}, "a pod is lost, or has not left"
    holders: list[str] = []
    for node in now.cluster.snapshot:
        for card in now.cluster.snapshot.cards(node.name):
            assert min(card.memory_free, card.cores_free) >= 0, f"{node.name}/{card.device.index} is overcommitted"
            holders += card.tenants
    assert sorted(holders) == sorted(now.pods), "a pod has no card, or two"


async def wake(cluster: Live, times: int) -> array[float]:
    """Seconds from the deletion of a pod until the pod that waited for its card is ready."""
    client, found = connect(cluster), array("d")
    for number in range(times):
        first, second = f"holds-{number}", f"waits-{number}"
        await client.create(PODS, pod(first, WHOLE), "default")
        await until(client, PODS, first, "default", condition("Ready"))
        await client.create(PODS, pod(second, WHOLE), "default")
        await until(client, PODS, second, "default", condition("PodScheduled", "False"))
        began = time.perf_counter()
        await client.delete(PODS, first, "default")
        await until(client, PODS, second, "default", condition("Ready"))
        found.append(time.perf_counter() - began)
        await client.delete(PODS, second, "default")
    await client.close()
    return found


def restarted(stack: ExitStack, cluster: Live, options: list[str]) -> tuple[Live, float]:
    """Kill a cluster and start it again; gives the seconds until it is ready."""
    cluster.stop(signal.SIGKILL)
    began = time.perf_counter()
    return stack.enter_context(live(*options)), time.perf_counter() - began


def free_port() -> int:
    """A free port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@click.command()
@click.option("--nodes", default=1_000, show_default=True, help="Simulated nodes, of 8 cards each.")
@click.option("--pods", default=10_000, show_default=True, help="Pods that run at the end.")
@click.option(
    "--wake-ups", default=30, show_default=True, help="How often a pod wakes the one that waits for its card."
)
@click.option("--write", is_flag=True, help="Put the table into docs/benchmarks.md.")
def main(nodes: int, pods: int, wake_ups: int, write: bool) -> None:
    """Measure a whole cluster in one process: pods per second, a restart, memory, wake-ups."""
    half, third = pods // 2, pods // 3
    rows: dict[str, dict[str, int | float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nvidia = nodes * 3 // 4
        (folder / "large.yaml").write_text(HARDWARE.format(nvidia=nvidia, mthreads=nodes - nvidia))
        (folder / "small.yaml").write_text(SMALL)
        options = ["--hardware", str(folder / "large.yaml"), "--state", str(folder / "state"), "--runtime", "none"]
        options += ["--port", str(free_port())]
        began = time.perf_counter()
        cluster = stack.enter_context(live(*options))
        first = time.perf_counter() - began
        say(f"{nodes:,} nodes are ready")
        rows["first half"] = asyncio.run(load(cluster, range(half)))
        say(f"{half:,} pods run")
        cluster, again = restarted(stack, cluster, options)
        say("killed and started again")
        rows["second half"] = asyncio.run(load(cluster, range(half, pods)))
        say(f"{pods:,} pods run")
        rows["a third leaves, as many come"] = asyncio.run(load(cluster, range(pods, pods + third), range(third)))
        say(f"{third:,} pods have left, as many have come")
        asyncio.run(check(cluster, range(third, pods + third)))
        cluster.stop()
        small = stack.enter_context(live("--hardware", str(folder / "small.yaml")))
        waits = summary(asyncio.run(wake(small, wake_ups)))
    names = list(rows["first half"])
    cells = ([row, *(_figure(figures[name]) for name in names)] for row, figures in rows.items())
    story = (
        f"{nodes:,} nodes with {nodes * 8:,} cards: ready after {first:.1f} s.\n"
        f"Killed and started again with {half:,} pods: ready after {again:.1f} s.\n"
        f"At the end {pods:,} pods ran, {third:,} had left, none was lost, no card was overcommitted."
    )
    woken = (
        f"Deleted to ready, {wake_ups} times, with real processes: median {waits.p50 * 1e3:.0f} ms, "
        f"p99 {waits.p99 * 1e3:.0f}, worst {waits.worst * 1e3:.0f}."
    )
    show("cluster", (story, table(["", *names], cells), woken), write)


def _figure(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
