"""Schedulers as processes of their own, the pods that they place, and a witness of what happens to these."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from subak.model import manifest
from subak.node.machine import Machine
from tests.e2e.runner import COMMAND
from tests.support.held_cards import overcommitted
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.reflector import Reflector
from tinykube.resource import NODES, PODS

PATIENCE = 60.0
AT_ONCE = 16

PER_CARD = 5
"""So many of `pods` fill a card of `hardware`."""
LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2000", "nvidia.com/gpucores": "20"}


def hardware(nodes: int, cards: int = 2) -> list[Machine]:
    """Machines whose cards HAMi describes."""
    card = {"vendor": "nvidia", "model": "A100", "count": cards, "memory": f"{2000 * PER_CARD}Mi", "shares": 10}
    return machines({"name": "fake", "count": nodes, "cards": card, "speaks": ["hami"], "cpu": 64, "memory": "512Gi"})


def kubeconfig(path: Path, server: str, token_file: Path, authority: Path | None = None) -> Path:
    """A file with which the holder of a token finds the API server."""
    cluster = {"server": server, **({"certificate-authority": str(authority)} if authority else {})}
    content = {
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"tokenFile": str(token_file)}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "current-context": "tests",
    }
    path.write_text(json.dumps(content))
    return path


class Scheduler:
    """A scheduler that can be killed and started again."""

    def __init__(self, config: Path, log: Path) -> None:
        self._config = config
        self.log = log
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            # setpriv: if this process is killed, the kernel ends the scheduler too.
            command = [
                "setpriv",
                "--pdeathsig",
                "KILL",
                "--",
                *COMMAND,
                "--listen=127.0.0.1:0",
                f"--kubeconfig={self._config}",
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
            )

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


@asynccontextmanager
async def scheduler(config: Path, log: Path) -> AsyncIterator[Scheduler]:
    """A scheduler; if the test fails meanwhile, the end of its log is printed."""
    running = Scheduler(config, log)
    try:
        yield running
        assert running.is_running, "the scheduler ended by itself"
    except BaseException:
        print("The log of the scheduler ends with:", *log.read_text(errors="replace").splitlines()[-60:], sep="\n")
        raise
    finally:
        running.kill()


def pod(name: str, limits: dict[str, str] = LIMITS) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    spec = {"schedulerName": "subak", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


async def create(client: Client, names: Iterable[str], limits: dict[str, str] = LIMITS) -> None:
    """Create pods as fast as the server takes them."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with slots:
            await client.create(PODS, pod(name, limits), "default")

    await asyncio.gather(*map(one, names))


class Witness:
    """Sees every change of every pod, on a way of its own: a pod that has a node keeps it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods = Reflector(client, PODS, manifest.Pod, self._see, namespace="default")
        self._places: dict[str, str] = {}
        self._moved: list[str] = []
        self.gone: set[str] = set()

    @property
    def placed(self) -> dict[str, str]:
        """The node of each bound pod, by the pod's name."""
        return {each.name: each.spec.node_name for each in self._pods.objects.values() if each.spec.node_name}

    def _see(self, change: str, seen: manifest.Pod) -> None:
        uid, node = seen.metadata.uid, seen.spec.node_name
        if change == "DELETED":
            self.gone.add(seen.name)
        if self._places.get(uid) and self._places[uid] != node:
            self._moved.append(f"{seen.name} moved from {self._places[uid]} to {node}")
        self._places[uid] = node

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Wait until something is true; gives how long that took."""
        began = time.monotonic()
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)
        return time.monotonic() - began

    async def until_placed(self, count: int, seconds: float = PATIENCE) -> float:
        """Wait until so many pods have a node; gives how long that took."""
        return await self.until(lambda: len(self.placed) >= count, seconds)

    async def problems(self) -> list[str]:
        """Pods that were bound twice, and cards that carry too much."""
        nodes, pods = await self._client.list(NODES), await self._client.list(PODS, "default")
        return self._moved + overcommitted(nodes.items, pods.items)


@asynccontextmanager
async def witness(client: Client) -> AsyncIterator[Witness]:
    """A witness; all pods that it has seen are removed at the end."""
    looking = Witness(client)
    task = asyncio.create_task(looking._pods.run())
    await looking._pods.synced.wait()
    try:
        yield looking
    finally:
        await client.request("DELETE", PODS.path("default"), {"gracePeriodSeconds": "0"})
        await looking.until(lambda: not looking._pods.objects)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
