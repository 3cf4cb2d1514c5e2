"""`subak up --state` is killed while pods arrive, and started again: nothing is lost, nothing is placed twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from subak.cli.live import picture
from tests.support import fuzz
from tests.support.live import PATIENCE, free_port, live
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.resource import PODS
from tinykube.status import ApiError

PODS_IN_ALL, KILLS = (240, 3) if fuzz.long() else (120, 2)
HARDWARE = """
nodes:
- {profile: shared, name: nvidia, count: 8, taints: [], cards: {count: 2}}
- {profile: moore-threads, name: mthreads, count: 2, cards: {count: 2}}
- {profile: metax-sgpu, name: metax, count: 1, cards: {count: 8}}
"""
SHAPES: tuple[dict[str, Any], ...] = (
    {"volcano.sh/gpu-memory": 700},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 900, "nvidia.com/gpucores": 3},
    {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-core": 4, "koordinator.sh/gpu-memory-ratio": 4},
    {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 2, "mthreads.com/sgpu-core": 1},
    {"metax-tech.com/sgpu": 1, "metax-tech.com/vcore": 5, "metax-tech.com/vmemory": 1},
)


@dataclass
class Witness:
    """What the server has confirmed: it must stay true whatever is killed."""

    created: dict[str, str] = field(default_factory=dict)
    placed: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)

    def see(self, pod: dict[str, Any], owned: frozenset[str]) -> None:
        """A pod that was seen bound keeps its node and its record."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if node:
            annotations = pod["metadata"].get("annotations", {})
            record = tuple(sorted((key, annotations[key]) for key in owned & annotations.keys() if "devices" in key))
            known = self.placed.setdefault(uid, (node, record))
            assert known[0] == node, f"{pod['metadata']['name']} was on {known[0]} and is on {node}"


def pod(number: int) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "1"]}
    limits = {"resources": {"limits": SHAPES[number % len(SHAPES)]}}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container | limits]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": spec}


@pytest.fixture
def options(tmp_path: Path) -> list[str | Path]:
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text(HARDWARE)
    # The same address and, with the state, the same certificate: clients need not notice a restart.
    return ["--state", tmp_path / "state", "--hardware", hardware, "--runtime", "none", "--port", str(free_port())]


async def create_all(client: Client, witness: Witness) -> None:
    """Create all pods; unconfirmed requests are sent again, as any client does."""
    crowd = asyncio.Semaphore(8)

    async def create(number: int) -> None:
        async with crowd:
            while f"p{number}" not in witness.created:
                try:
                    made = await client.create(PODS, pod(number), "default")
                except ApiError as error:
                    if error.reason != "AlreadyExists":
                        raise
                    made = await client.get(PODS, f"p{number}", "default")  # the last try succeeded without an answer
                except (OSError, TimeoutError):
                    await asyncio.sleep(0.05)
                    continue
                witness.created[f"p{number}"] = made["metadata"]["uid"]

    await asyncio.gather(*(create(number) for number in range(PODS_IN_ALL)))


async def watch_all(client: Client, witness: Witness, owned: frozenset[str]) -> None:
    while True:
        with suppress(OSError, TimeoutError, ApiError):
            for each in (await client.list(PODS)).items:
                witness.see(each, owned)
        await asyncio.sleep(0.02)


def test_nothing_is_lost_and_nothing_is_placed_twice(options: list[str | Path]) -> None:
    asyncio.run(_story(options))


async def _story(options: list[str | Path]) -> None:
    witness = Witness()
    with ExitStack() as stack:
        running = stack.enter_context(live(*options))
        client = Client(HttpTransport(kubeconfig.load(running.kubeconfig)))
        owned = (await picture(client)).cluster.interpreter.owned
        watching = asyncio.create_task(watch_all(client, witness, owned))
        creating = asyncio.create_task(create_all(client, witness))
        for kill in range(1, KILLS + 1):
            await _until(partial(_enough, witness, PODS_IN_ALL * kill // (KILLS + 1)), creating)
            running.stop(signal.SIGKILL)
            running = await asyncio.to_thread(stack.enter_context, live(*options))
        await asyncio.wait_for(creating, PATIENCE)
        await _until_running(client)
        watching.cancel()
        await _check(client, witness)
        await client.close()
        assert running.stop() == 0


def _enough(witness: Witness, count: int) -> bool:
    return len(witness.created) >= count


async def _until(check: Callable[[], bool], meanwhile: asyncio.Task[None]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not check():
            if meanwhile.done():
                await meanwhile
            await asyncio.sleep(0.01)


async def _until_running(client: Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        pods = (await client.list(PODS)).items
        others = {each["metadata"]["name"]: each["status"] for each in pods if each["status"].get("phase") != "Running"}
        if len(pods) == PODS_IN_ALL and not others:
            return
        assert time.monotonic() < deadline, f"{len(pods)} pods, of which these do not run: {others}"
        await asyncio.sleep(0.05)


async def _check(client: Client, witness: Witness) -> None:
    """Check that every confirmed pod is where it was seen, and no card holds more than it can."""
    pods = {each["metadata"]["name"]: each for each in (await client.list(PODS)).items}
    assert {name: each["metadata"]["uid"] for name, each in pods.items()} == witness.created
    for each in pods.values():
        witness.see(each, frozenset())
    now = await picture(client)
    assert now.cluster.warnings == []
    holders: set[str] = set()
    for node in now.cluster.snapshot:
        for card in now.cluster.snapshot.cards(node.name):
            assert min(card.memory_free, card.cores_free) >= 0, f"{node.name}/{card.device.index}: {card.tenants}"
            holders.update(card.tenants)
    assert holders == {f"default/{name}" for name in pods}, "every pod holds a card"
