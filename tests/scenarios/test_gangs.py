"""Gangs on a cluster as `subak up` starts it: with the document's configuration, over cards of two dialects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from subak.local.cluster import LocalCluster
from subak.local.volcano import CONFIG_MAP
from subak.model.group import QUEUES, VOLCANO_GROUPS
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import CONFIG_MAPS, EVENTS, PODS, PRIORITY_CLASSES, Resource
from tinykube.yaml import read

Json = dict[str, Any]

PATIENCE = 60.0
CARDS = {"vendor": "nvidia", "model": "A100", "memory": "10000Mi"}
SEED: Json = read(CONFIG_MAP.read_text()).content


class Stage:
    """A cluster, and what its user does."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def group(self, name: str, least: int, **spec: Any) -> None:
        await self.client.create(VOLCANO_GROUPS, made(VOLCANO_GROUPS, name, {"minMember": least, **spec}), "default")

    async def pod(self, name: str, limits: Json, group: str = "", **spec: Any) -> None:
        annotations = {"scheduling.k8s.io/group-name": group} if group else {}
        container = {"name": "c", "image": "x", "resources": {"limits": limits}}
        inside = {"schedulerName": "volcano", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": inside}
        await self.client.create(PODS, body, "default")

    async def bound(self, prefix: str) -> set[str]:
        """The pods that have a node, of those whose names begin so."""
        pods = (await self.client.list(PODS, "default")).items
        names = (each["metadata"]["name"] for each in pods if each["spec"].get("nodeName"))
        return {name for name in names if name.startswith(prefix)}

    async def until_bound(self, prefix: str, count: int) -> None:
        await self.until(lambda pods: sum(1 for name in pods if name.startswith(prefix) and _node(pods[name])) == count)

    async def until(self, condition: Callable[[dict[str, Json]], bool]) -> None:
        """Wait until something is true of the pods, by name."""
        pods: dict[str, Json] = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    listing = await self.client.list(PODS, "default")
                    pods = {each["metadata"]["name"]: each for each in listing.items}
                    if condition(pods):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            state = {name: (_node(pod), pod["status"].get("conditions")) for name, pod in pods.items()}
            raise AssertionError(f"after {PATIENCE:.0f} s the pods are still: {state}") from None

    async def until_phase(self, group: str, phase: str) -> Json:
        found: Json = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while found.get("phase") != phase:
                    found = (await self.client.get(VOLCANO_GROUPS, group, "default")).get("status", {})
                    await asyncio.sleep(0.02)
                return found
        except TimeoutError:
            raise AssertionError(f"PodGroup {group} is not {phase}: {found}") from None


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def made(resource: Resource, name: str, spec: Json) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def stage(nodes: int, cards: int) -> AsyncIterator[Stage]:
    """A cluster of simulated cards with 10,000 MiB each, whose containers do nothing."""
    entry = {"name": "n", "count": nodes, "cards": {**CARDS, "count": cards}, "speaks": ["volcano", "hami"], "cpu": 64}
    async with LocalCluster(machines(entry), runtime="none") as cluster:
        yield Stage(cluster.client)


def test_a_gang_of_eight_starts_whole_or_not_at_all_and_holds_nothing_meanwhile() -> None:
    async def story() -> None:
        async with stage(2, 4) as on:
            queues = {each["metadata"]["name"] for each in (await on.client.list(QUEUES)).items}
            assert queues <= {"default", "root"}
            await on.pod("blocker", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000})
            await on.until_bound("blocker", 1)
            await on.group("eight", 8)
            for number in range(8):
                await on.pod(f"eight-{number}", {"volcano.sh/gpu-memory": 8000}, "eight")
            await on.until_phase("eight", "Inqueue")
            await on.until(lambda pods: all(_waits(pods[f"eight-{number}"]) for number in range(8)))
            # Seven cards are free for others, all the while.
            for number in range(7):
                await on.pod(f"other-{number}", {"volcano.sh/gpu-memory": 9000})
            await on.until_bound("other", 7)
            assert not await on.bound("eight")
            for name in ("blocker", *(f"other-{number}" for number in range(7))):
                await on.client.delete(PODS, name, "default", grace=0)
            await on.until_bound("eight", 8)
            status = await on.until_phase("eight", "Running")
            assert "Scheduled" in [each["type"] for each in status["conditions"]]
            listing = await on.client.list(EVENTS, "default", fields="involvedObject.name=eight")
            assert "Unschedulable" in {each["reason"] for each in listing.items}

    asyncio.run(story())


def _waits(pod: Json) -> bool:
    """Whether a pod's user was told how its gang stands."""
    conditions = pod["status"].get("conditions", ())
    return any("of 8 members fit" in each.get("message", "") for each in conditions)


def test_an_important_gang_takes_the_least_important_of_each_card_and_nobody_else() -> None:
    async def story() -> None:
        async with stage(2, 1) as on:
            text = SEED["data"]["volcano-scheduler.conf"].replace("allocate,", "allocate, preempt,")
            for name in ("gang", "drf"):  # as Volcano's own configuration has it
                text = text.replace(f"- name: {name}\n", f"- name: {name}\n    enablePreemptable: false\n")
            metadata, patch = SEED["metadata"], {"data": {"volcano-scheduler.conf": text}}
            await on.client.patch(CONFIG_MAPS, metadata["name"], metadata["namespace"], patch)
            for name, value in (("low", 10), ("middle", 100), ("high", 1000)):
                await on.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
            for number in (1, 2):
                there: Json = {"nodeSelector": {"kubernetes.io/hostname": f"n-{number}"}}
                await on.pod(f"low-{number}", {"volcano.sh/gpu-memory": 4000}, priorityClassName="low", **there)
                await on.pod(f"mid-{number}", {"volcano.sh/gpu-memory": 5000}, priorityClassName="middle", **there)
            await on.until(lambda pods: len(pods) == 4 and all(map(_node, pods.values())))
            await on.group("vip", 2, priorityClassName="high")
            for number in (1, 2):
                await on.pod(f"vip-{number}", {"volcano.sh/gpu-memory": 4500}, "vip", priorityClassName="high")
            await on.until_bound("vip", 2)
            names = {each["metadata"]["name"] for each in (await on.client.list(PODS, "default")).items}
            assert names == {"mid-1", "mid-2", "vip-1", "vip-2"}

    asyncio.run(story())
