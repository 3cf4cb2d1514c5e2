"""Two queues share cards by their weights, on a cluster as `subak up` starts it, with the document's configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import PATIENCE, Live, live
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.resource import PODS

pytestmark = pytest.mark.long

HARDWARE = """
nodes:
- {profile: shared, name: node, count: 2, taints: [], cards: {count: 2, memory: 16000Mi}}
"""
TOTAL, POD = 64_000, 2000
"""MiB of all cards, and of each pod."""

ROOM = TOTAL // POD

CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""As the Volcano document prints it."""

CONFIG_MAP: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
}

SHAPES: tuple[dict[str, Any], ...] = (
    {"volcano.sh/gpu-memory": POD},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": POD},
    {"koordinator.sh/gpu-memory": f"{POD}Mi"},
)


def queue(name: str, weight: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def pod(queue: str, number: int, limits: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{queue}-{number}",
            "annotations": {"scheduling.volcano.sh/queue-name": queue},
        },
        "spec": {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def blocker(number: int) -> dict[str, Any]:
    """Takes a card until the queues are full of pods."""
    each = pod("none", number, {"volcano.sh/gpu-number": 1})
    return {**each, "metadata": {"name": f"blocker-{number}"}, "spec": {**each["spec"], "schedulerName": "subak"}}


BLOCKERS = [blocker(i) for i in range(4)]


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text(HARDWARE)
    with live("--hardware", hardware, "--runtime", "none") as running:
        yield running


@asynccontextmanager
async def client_of(cluster: Live) -> AsyncIterator[Client]:
    transport = HttpTransport(kubeconfig.load(str(cluster.kubeconfig)))
    try:
        yield Client(transport, "test")
    finally:
        await transport.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.1)


def apply(cluster: Live, *objects: dict[str, Any]) -> None:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    cluster.run("subak", "apply", "-f", "-", stdin=content)


async def _placed(client: Client, count: int) -> bool:
    found = (await client.list(PODS, "default")).items
    return sum(bool(each["spec"].get("nodeName")) for each in found) >= count


def held(cluster: Live) -> dict[str, Any]:
    views = json.loads(cluster.subak("queues", "-o", "json").stdout)["queues"]
    return {view["name"]: view for view in views}


@pytest.mark.parametrize("shapes", [SHAPES[:1], SHAPES], ids=["volcano", "a mix of dialects"])
async def test_queues_that_both_want_everything_get_within_one_pod_of_their_share(
    cluster: Live, shapes: tuple[dict[str, Any], ...]
) -> None:
    apply(cluster, queue("small", 1), queue("large", 3), *BLOCKERS)
    async with client_of(cluster) as client:
        await until(lambda: _placed(client, len(BLOCKERS)))
        apply(cluster, *(pod(name, i, shapes[i % len(shapes)]) for i in range(40) for name in ("small", "large")))
        for each in BLOCKERS:  # card after card becomes free
            await client.delete(PODS, each["metadata"]["name"], "default")
        await until(lambda: _placed(client, ROOM - 1))
        views = held(cluster)
        for name, share in (("small", 0.25), ("large", 0.75)):
            deserved, holds = (views[name][what]["nvidia/memory"] / (1 << 20) for what in ("deserved", "held"))
            assert deserved == pytest.approx(TOTAL * share)
            assert deserved - POD <= holds <= deserved


@pytest.mark.parametrize("reclaims", [False, True], ids=["without reclaim", "with reclaim"])
async def test_only_reclaim_takes_from_a_queue_and_only_what_is_above_its_share(cluster: Live, reclaims: bool) -> None:
    async with client_of(cluster) as client:
        if reclaims:
            text = CONFIGURATION.replace("allocate", "allocate, reclaim")
            apply(cluster, {**CONFIG_MAP, "data": {"volcano-scheduler.conf": text}})
        apply(cluster, queue("small", 1), queue("large", 3), *(pod("small", i, SHAPES[0]) for i in range(40)))
        await until(lambda: _placed(client, ROOM))
        before = await _names(client, "small")
        apply(cluster, *(pod("large", i, SHAPES[0]) for i in range(40)))
        if reclaims:
            await until(lambda: _settled(cluster))
            taken = before - await _names(client, "small")
            assert len(taken) == 24
        else:
            await until(lambda: _told(client, "large", 40))
            assert await _names(client, "small") == before
            assert held(cluster)["large"]["held"] == {}
        assert len(await _names(client, "large")) == 40, "who takes back is not taken from"


async def _names(client: Client, queue: str) -> set[str]:
    """The pods of a queue that are there to stay."""
    found = (await client.list(PODS, "default")).items
    living = (each["metadata"] for each in found if "deletionTimestamp" not in each["metadata"])
    return {each["name"] for each in living if each["name"].startswith(queue)}


async def _told(client: Client, queue: str, count: int) -> bool:
    """Whether so many pods of a queue know why they wait."""
    found = (await client.list(PODS, "default")).items
    mine = [each["status"] for each in found if each["metadata"]["name"].startswith(queue)]
    conditions = [status.get("conditions", [{}])[0] for status in mine]
    return len([each for each in conditions if each.get("reason") == "Unschedulable"]) >= count


async def _settled(cluster: Live) -> bool:
    """Whether both queues hold what they deserve."""
    views = held(cluster)
    amounts = [(views[name]["held"], views[name]["deserved"]) for name in ("small", "large")]
    return all(holds.get("nvidia/memory") == deserves.get("nvidia/memory") for holds, deserves in amounts)
