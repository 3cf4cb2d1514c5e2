"""A local cluster with simulated NVIDIA cards: their driver is simulated too, and libsubak holds pods to their part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from subak.local.cluster import LocalCluster
from subak.local.runtime import capability
from subak.model import manifest
from subak.node import library
from subak.node.machine import Machine
from tests.support.card import CONTEXT_MIB
from tests.support.live import PATIENCE, ROOT
from tests.support.machines import INTERPRETER, machine
from tinykube.resource import PODS
from tinykube.server.kubelet import Session
from tinykube.wait import condition, until

TOTAL = "nvidia-smi --query-gpu=memory.total --format=csv,noheader"
USED = "nvidia-smi --query-compute-apps=used_memory --format=csv,noheader"

pytestmark = pytest.mark.usefixtures("libsubak")


class Running:
    """A cluster and the pods on it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._pods: dict[str, dict[str, Any]] = {}

    async def run(self, pod: dict[str, Any]) -> None:
        """Create a pod and wait until it runs."""
        client, name = self._cluster.client, pod["metadata"]["name"]
        await client.create(PODS, pod, "default")
        async with asyncio.timeout(PATIENCE):
            await until(client, PODS, name, "default", condition("Ready"))
        self._pods[name] = await client.get(PODS, name, "default")

    async def waits(self, pod: dict[str, Any]) -> dict[str, Any]:
        """Create a pod; gives why its container cannot start."""
        client, name = self._cluster.client, pod["metadata"]["name"]
        await client.create(PODS, pod, "default")
        async with asyncio.timeout(PATIENCE):
            while True:
                found = (await client.get(PODS, name, "default"))["status"].get("containerStatuses") or [{}]
                waiting: dict[str, Any] = found[0].get("state", {}).get("waiting") or {}
                if waiting.get("message"):
                    return waiting
                await asyncio.sleep(0.01)

    async def start(self, pod: str, script: str) -> Session:
        """A script of the shell that runs in the pod."""
        found, command = self._pods[pod], ["sh", "-c", script]
        name = found["spec"]["containers"][0]["name"]
        return await self._cluster.kubelet.execute(found, name, command, stdin=False, tty=False)

    async def sh(self, pod: str, script: str) -> list[str]:
        """What a script prints in the pod, line by line."""
        session = await self.start(pod, script)
        printed = b"".join([data async for _, data in session.output()])
        await session.close()
        return printed.decode().splitlines()

    @asynccontextmanager
    async def holding(self, pod: str, size: str) -> AsyncIterator[None]:
        """A program in the pod has taken so much and keeps it."""
        session = await self.start(pod, f"exec subak-allocate {size} 1000")
        _, said = await anext(session.output())
        assert b" given, " in said
        yield
        await session.close()

    async def until_uses(self, pod: str, mib: int) -> None:
        """Wait until the node says that the pod uses so much."""
        found = msgspec.convert(self._pods[pod], manifest.Pod)
        async with asyncio.timeout(PATIENCE):
            while self._used(found) != [mib]:
                await asyncio.sleep(0.01)

    def _used(self, pod: manifest.Pod) -> list[int]:
        return [use.memory_bytes >> 20 for uses in self._cluster.agents.use(pod).values() for _, use in uses]


@asynccontextmanager
async def cluster(described: Machine) -> AsyncIterator[Running]:
    """A cluster of one node, with processes."""
    obstacle = await capability.obstacle()
    if obstacle:
        pytest.skip(obstacle)
    async with LocalCluster([described], INTERPRETER) as running:
        yield Running(running)


def pod(name: str, limits: Mapping[str, int], **env: str) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", "100000"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": {key: str(amount) for key, amount in limits.items()}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def test_enter_the_pod_and_see_the_upper_limit() -> None:
    """The last step of Koordinator's document."""
    async with cluster(machine("koordinator")) as running:
        for name in ("notebook", "pod"):
            await running.run(yaml.safe_load(Path(ROOT, f"examples/koordinator/{name}.yaml").read_text()))
        table = await running.sh("pod-example", "nvidia-smi")
        assert any("|       0MiB /  11520MiB |" in line for line in table)
        assert "simulated" in table[2]
        given, refused, code = await running.sh("pod-example", "subak-allocate 11Gi; subak-allocate 12Gi; echo $?")
        assert given == "11264 MiB given, 11420 of 11520 MiB were free: CUDA_SUCCESS"
        assert refused == "12288 MiB refused, 11420 of 11520 MiB were free: CUDA_ERROR_OUT_OF_MEMORY"
        assert code == "1"
        # A program without its environment, or with another one, is told the same.
        more = "CUDA_DEVICE_MEMORY_LIMIT=20g CUDA_DISABLE_CONTROL=true"
        bare = await running.sh("pod-example", f"{TOTAL}; env -i {TOTAL}; env -i {more} {TOTAL}")
        assert bare == ["11520 MiB"] * 3
        # It cannot reach the card that its container was not given.
        listed = await running.sh("pod-example", "nvidia-smi -L; NVIDIA_VISIBLE_DEVICES=all nvidia-smi -L")
        assert len(listed) == 2
        assert len({*listed, *await running.sh("notebook", "nvidia-smi -L")}) == 2


async def test_tenants_of_a_card_share_its_memory_and_each_sees_its_own() -> None:
    """Their processes have the same numbers, in namespaces of their own.  HAMi lets a pod choose to have no limits."""
    async with cluster(machine("shared", taints=[])) as running:
        share = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10000}
        await running.run(pod("modest", share))
        await running.run(pod("greedy", share, CUDA_DISABLE_CONTROL="true"))
        async with running.holding("modest", "2Gi"), running.holding("greedy", "18Gi"):
            assert await running.sh("modest", USED) == [f"{2048 + CONTEXT_MIB} MiB"]
            assert await running.sh("greedy", USED) == [f"{18432 + CONTEXT_MIB} MiB"]
            await running.until_uses("modest", 2048 + CONTEXT_MIB)
            (full,) = await running.sh("modest", "subak-allocate 4Gi")
            assert full.startswith("4096 MiB refused, 2248 of ")  # the limit would allow it, the card has no more
        (given,) = await running.sh("modest", "subak-allocate 4Gi")
        assert given.startswith("4096 MiB given")


async def test_where_no_agent_tells_uuids_a_container_has_its_card_by_number() -> None:
    async with cluster(machine("volcano", speaks=["volcano"])) as running:
        await running.run(pod("p", {"volcano.sh/gpu-memory": 1000}))
        assert await running.sh("p", TOTAL) == ["1000 MiB"]
        assert await running.sh("p", "env -i nvidia-smi -L") == ["No devices were found"]


async def test_without_the_library_that_limits_it_a_container_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PACKAGED", "BUILT"):
        monkeypatch.setattr(library, name, tmp_path / "none")
    async with cluster(machine("koordinator")) as running:
        waiting = await running.waits(pod("p", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}))
        assert waiting["reason"] == "CreateContainerError"
        assert "libsubak.so, which holds the container to its share of the cards, is not on" in waiting["message"]
