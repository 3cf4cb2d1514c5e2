"""Our scheduler beside the vendors' agents: every pod gets the cards that we chose for it, on a real API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from subak.scheduler.service import Service
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.vendors import Agent, Hami, Koordlet, VolcanoShare, VolcanoVgpu, kubelets
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import PODS

CARDS = {"vendor": "nvidia", "model": "Tesla V100", "count": 2, "memory": "16384Mi"}
HARDWARE = [
    {"name": name, "cards": CARDS, "speaks": [speaks]}
    for name, speaks in (("h", "hami"), ("vg", "volcano-vgpu"), ("vs", "volcano"), ("k", "koordinator"))
]
AGENTS: dict[str, Agent] = {"h": Hami(), "vg": VolcanoVgpu(), "vs": VolcanoShare(), "k": Koordlet()}


def pods() -> dict[str, list[dict[str, Any]]]:
    """The limits of each pod's containers, by its name; no two pods of a system ask for the same."""
    found: dict[str, list[dict[str, Any]]] = {}
    for i in range(5):
        found[f"hami-{i}"] = [{"nvidia.com/gpu": 1 + i % 2, "nvidia.com/gpumem": 1000 + i}]
        found[f"vgpu-{i}"] = [{"volcano.sh/vgpu-number": 1 + i % 2, "volcano.sh/vgpu-memory": 1000 + i}]
        found[f"share-{i}"] = [{"volcano.sh/gpu-memory": 2000 + 1000 * i}]
        found[f"koord-{i}"] = [{"koordinator.sh/gpu-core": 10 + i, "koordinator.sh/gpu-memory-ratio": 10 + i}]
    found["hami-two"] = [
        {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 500},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 600},
    ]
    return found


def recorded(pod: dict[str, Any]) -> list[list[str]]:
    """The cards of each container, by the record that stays."""
    annotations = pod["metadata"]["annotations"]
    for key in ("hami.io/vgpu-devices-allocated", "volcano.sh/vgpu-ids-new"):
        if key in annotations:
            groups = [[card.split(",")[0] for card in part.split(":") if card] for part in annotations[key].split(";")]
            return [each for each in groups if each]
    if "volcano.sh/gpu-index" in annotations:
        return [annotations["volcano.sh/gpu-index"].split(",")]
    record = json.loads(annotations["scheduling.koordinator.sh/device-allocated"])
    return [[str(each["minor"]) for each in record["gpu"]]]


@asynccontextmanager
async def scheduler(client: Client) -> AsyncIterator[None]:
    """Our scheduler."""
    service = Service(client)
    running = asyncio.create_task(service.run())
    try:
        await service.ready.wait()
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def all_running(client: Client) -> dict[str, dict[str, Any]]:
    """Wait until kubelets have admitted all pods; gives the pods by name."""
    async with asyncio.timeout(60):
        while True:
            found = {each["metadata"]["name"]: each for each in (await client.list(PODS, "default")).items}
            if all(each["status"].get("phase") == "Running" for each in found.values()):
                return found
            await asyncio.sleep(0.1)


async def test_vendors_agents_give_every_pod_the_cards_that_we_chose(cluster: Cluster) -> None:
    wanted = pods()
    async with (
        administrator(cluster) as client,
        fake_nodes(client, machines(*HARDWARE), marked=False),
        kubelets(client, AGENTS) as nodes,
        scheduler(client),
    ):
        try:
            for name, limits in wanted.items():
                containers = [
                    {"name": f"c{i}", "image": "none", "resources": {"limits": {k: str(v) for k, v in each.items()}}}
                    for i, each in enumerate(limits)
                ]
                body = {"metadata": {"name": name}, "spec": {"schedulerName": "subak", "containers": containers}}
                await client.create(PODS, body, "default")
            found = await all_running(client)
            assert [each.mistaken for each in nodes.values()] == [[], [], [], []]
            served = {name: cards for each in nodes.values() for name, cards in each.served.items()}
            assert served == {name: recorded(pod) for name, pod in found.items()}
            shared = [cards for name, (cards, *_) in served.items() if "share" in name]
            assert ["0"] in shared
            assert ["1"] in shared
            hami = found["hami-0"]["metadata"]
            assert hami["labels"] == {"hami.io/vgpu-node": "h"}
            assert hami["annotations"]["hami.io/bind-phase"] == "success"
        finally:
            for name in wanted:
                await client.delete(PODS, name, "default", grace=0)
