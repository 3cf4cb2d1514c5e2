"""A whole cluster in one process: pods per second until they run, memory, restart after a kill, wake-up of who waits.

`subak up --state` with simulated nodes of eight cards, and the runtime that starts nothing.  A client in a process of
its own creates pods in four dialects over HTTPS, 32 at a time, and waits until all of them run.  In the middle the
cluster is killed and started again.  At the end the invariants are checked on what the API server says: every pod that
was confirmed is there, holds a card, and no card has more than it can hold.

The server's CPU time is shown beside wall time, because machines are noisy and the client shares the processors.  Wake-
ups are measured on a small cluster that runs real processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subak.cli.live import picture
from subak.kube import kubeconfig
from subak.kube.client import Client
from subak.kube.codec import WatchEvent
from subak.kube.http import HttpTransport
from subak.kube.resource import PODS
from subak.kube.status import ApiError
from subak.kube.wait import condition, until
from tests.live import Live, live

NODES = int(os.environ.get("BENCH_NODES", "1000"))
PODS_IN_ALL = int(os.environ.get("BENCH_PODS", "10000"))
AT_ONCE = 32
WAKE_UPS = 30
PATIENCE = 600.0

HARDWARE = f"""
nodes:
- {{profile: shared, name: nvidia, count: {NODES * 3 // 4}, taints: [], cards: {{count: 8}}}}
- {{profile: moore-threads, name: mthreads, count: {NODES - NODES * 3 // 4}}}
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
    """A process, as the kernel counts it."""

    pid: int

    @property
    def cpu(self) -> float:
        """Seconds of CPU time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory_mib(self) -> int:
        """The most memory that it had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def pod(name: str, limits: dict[str, Any]) -> dict[str, Any]:
    """A small pod."""
    container = {"name": "c", "image": "busybox", "command": ["sleep", "infinity"], "resources": {"limits": limits}}
    metadata, spec = {"name": name}, {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def connect(cluster: Live) -> Client:
    """A client for a cluster."""
    return Client(HttpTransport(kubeconfig.load(cluster.kubeconfig)))


async def create(client: Client, numbers: range) -> None:
    """Create pods; those whose answer was lost are asked for again."""
    crowd = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with crowd:
            while True:
                try:
                    await client.create(PODS, pod(f"p{number}", SHAPES[number % len(SHAPES)]), "default")
                    return
                except ApiError as error:
                    if error.reason == "AlreadyExists":
                        return
                    raise
                except (OSError, TimeoutError):
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(one(number) for number in numbers))


async def running(client: Client, count: int) -> None:
    """Wait until so many pods run."""
    selected = "status.phase=Running"
    async with asyncio.timeout(PATIENCE):
        listing = await client.list(PODS, fields=selected)
        names = {each["metadata"]["name"] for each in listing.items}
        events = await client.watch(PODS, revision=listing.revision, fields=selected)
        while len(names) < count:
            event = await anext(events)
            if isinstance(event, WatchEvent) and event.type == "ADDED":
                names.add(event.object["metadata"]["name"])


async def load(cluster: Live, numbers: range) -> dict[str, float]:
    """Create pods and wait until they run."""
    client, usage = connect(cluster), Usage(cluster.process.pid)
    began, cpu = time.perf_counter(), usage.cpu
    waiting = asyncio.create_task(running(client, numbers.stop))
    await create(client, numbers)
    created = time.perf_counter() - began
    await waiting
    seconds = time.perf_counter() - began
    await client.close()
    return {
        "created/s": len(numbers) / created,
        "running/s": len(numbers) / seconds,
        "server CPU, ms a pod": (usage.cpu - cpu) / len(numbers) * 1e3,
        "memory, MiB": usage.memory_mib,
    }


async def check(cluster: Live) -> None:
    """Every pod is there and holds a card, and no card holds more than it can."""
    client = connect(cluster)
    now = await picture(client)
    await client.close()
    assert set(now.pods) == {f"default/p{number}" for number in range(PODS_IN_ALL)}, "a pod is lost"
    holders: list[str] = []
    for node in now.cluster.snapshot:
        for card in now.cluster.snapshot.cards(node.name):
            assert min(card.memory_free, card.cores_free) >= 0, f"{node.name}/{card.device.index} is overcommitted"
            holders += card.tenants
    assert sorted(holders) == sorted(now.pods), "a pod has no card, or two"


async def wake_ups(cluster: Live) -> list[float]:
    """Milliseconds from asking for the deletion of a pod until the one that waited for its card is ready."""
    client, found = connect(cluster), []
    for number in range(WAKE_UPS):
        first, second = f"holds-{number}", f"waits-{number}"
        await client.create(PODS, pod(first, WHOLE), "default")
        await until(client, PODS, first, "default", condition("Ready"))
        await client.create(PODS, pod(second, WHOLE), "default")
        await until(client, PODS, second, "default", condition("PodScheduled", "False"))
        began = time.perf_counter()
        await client.delete(PODS, first, "default")
        await until(client, PODS, second, "default", condition("Ready"))
        found.append((time.perf_counter() - began) * 1e3)
        await client.delete(PODS, second, "default")
    await client.close()
    return found


def restarted(stack: ExitStack, cluster: Live, options: list[str]) -> tuple[Live, float]:
    """Kill a cluster and start it again; seconds until it is ready."""
    cluster.stop(signal.SIGKILL)
    began = time.perf_counter()
    return stack.enter_context(live(*options)), time.perf_counter() - began


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def main(options: Sequence[str] = ()) -> None:
    """Measure and print."""
    half = PODS_IN_ALL // 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "large.yaml").write_text(HARDWARE)
        (folder / "small.yaml").write_text(SMALL)
        flags = ["--hardware", str(folder / "large.yaml"), "--state", str(folder / "state"), "--runtime", "none"]
        flags += ["--port", str(free_port())]
        began = time.perf_counter()
        cluster = stack.enter_context(live(*flags))
        print(f"{NODES:,} nodes with {NODES * 8:,} cards: ready after {time.perf_counter() - began:.1f} s")
        rows = {"first half": asyncio.run(load(cluster, range(half)))}
        cluster, seconds = restarted(stack, cluster, flags)
        print(f"killed and started again with {half:,} pods: ready after {seconds:.1f} s")
        rows["second half"] = asyncio.run(load(cluster, range(half, PODS_IN_ALL)))
        asyncio.run(check(cluster))
        print(f"{PODS_IN_ALL:,} pods run, none is lost, no card is overcommitted")
        cluster.stop()
        show(rows)
        small = stack.enter_context(live("--hardware", str(folder / "small.yaml")))
        waits = sorted(asyncio.run(wake_ups(small)))
        print(
            f"deleted to ready, {WAKE_UPS} times, with real processes: median {statistics.median(waits):.0f} ms, "
            f"best {waits[0]:.0f}, worst {waits[-1]:.0f}"
        )


def show(rows: dict[str, dict[str, float]]) -> None:
    """The table."""
    names = list(next(iter(rows.values())))
    print("| | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for row, figures in rows.items():
        print(f"| {row} | " + " | ".join(f"{figures[name]:,.1f}" for name in names) + " |")
