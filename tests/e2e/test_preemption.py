"""Preemption beside the real kube-scheduler's, and the whole story on a real API server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from subak.model import manifest
from subak.model.budget import BUDGETS, Budget
from subak.policy.decider import Decider
from subak.policy.victims import started
from subak.scheduler.service import Service
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.e2e.preemption_worlds import CLASSES, NAMESPACE, World, world
from tests.support import preemption, victims
from tests.support.machines import INTERPRETER, machines
from tinykube.client import MERGE_PATCH, Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.resource import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from tinykube.status import ApiError

WORLDS = int(os.environ.get("SUBAK_PREEMPTION_WORLDS", "120"))
AT_ONCE = 16
PATIENCE = 120.0


async def each(jobs: Iterable[Awaitable[Any]]) -> list[Any]:
    """Do all of it, a few at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(job: Awaitable[Any]) -> Any:
        async with slots:
            return await job

    return await asyncio.gather(*map(one, jobs))


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.1)


async def gone(client: Client, resource: Resource, name: str, namespace: str = "") -> None:
    try:
        await client.delete(resource, name, namespace, grace=0)
    except ApiError as error:
        if error.code != 404:
            raise


@asynccontextmanager
async def classes(client: Client) -> AsyncIterator[None]:
    """Priority classes, and a namespace."""
    await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for name, value in CLASSES.items():
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    await until(lambda: has_account(client))
    try:
        yield
    finally:
        await gone(client, NAMESPACES, NAMESPACE)
        for name in CLASSES:
            await gone(client, PRIORITY_CLASSES, name)
        await until(lambda: has_no_namespace(client))


async def has_no_namespace(client: Client) -> bool:
    return all(each["metadata"]["name"] != NAMESPACE for each in (await client.list(NAMESPACES)).items)


async def has_account(client: Client) -> bool:
    accounts = Resource("", "v1", "serviceaccounts", kind="ServiceAccount")
    return any(each["metadata"]["name"] == "default" for each in (await client.list(accounts, NAMESPACE)).items)


@asynccontextmanager
async def settled(client: Client, worlds: Sequence[World]) -> AsyncIterator[None]:
    """All objects of these worlds, but for the pods that want a place."""
    await each(client.create(NODES, node) for one in worlds for node in one.nodes)
    await each(client.create(PODS, pod, NAMESPACE) for one in worlds for pod in one.pods)
    await each(client.create(BUDGETS, budget, NAMESPACE) for one in worlds for budget in one.budgets)
    await each(
        client.patch_status(BUDGETS, budget["metadata"]["name"], NAMESPACE, budget["status"], kind=MERGE_PATCH)
        for one in worlds
        for budget in one.budgets
    )
    await each(
        client.patch_status(PODS, name, NAMESPACE, {"startTime": start}, kind=MERGE_PATCH)
        for one in worlds
        for name, start in one.starts.items()
    )
    try:
        yield
    finally:
        everything = await client.list(PODS, NAMESPACE)
        await each(gone(client, PODS, pod["metadata"]["name"], NAMESPACE) for pod in everything.items)
        await each(gone(client, NODES, node["metadata"]["name"]) for one in worlds for node in one.nodes)


class Side:
    """The same worlds on our side, read from the API server."""

    def __init__(self, number: int, nodes: list[Any], pods: list[Any], budgets: list[Any]) -> None:
        mine = str(number)
        digests = [
            INTERPRETER.node(msgspec.convert(node, manifest.Node), None)[0]
            for node in nodes
            if node["metadata"]["labels"].get("world") == mine
        ]
        self.stage = preemption.World(Decider(INTERPRETER, digests))
        self.pods = [msgspec.convert(pod, manifest.Pod) for pod in pods if pod["metadata"]["labels"]["world"] == mine]
        self.budgets = [msgspec.convert(budget, Budget) for budget in budgets]
        for pod in self.pods:
            self.stage.hold(pod)
        for budget in self.budgets:
            self.stage.preemption.budgets.put(budget)

    def cost(self, names: Iterable[str]) -> victims.Cost | None:
        """What it costs that pods of these names leave; None for nobody."""
        chosen = set(names)
        leaving = [pod for pod in self.pods if pod.name in chosen]
        seconds = {pod.key: started(pod) for pod in self.pods}
        return victims.cost(leaving, self.budgets, seconds) if leaving else None


async def test_victims_are_those_of_kube_scheduler_or_fewer_and_lower_ones(cluster: Cluster, tmp_path: Path) -> None:
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000},
    }
    (tmp_path / "scheduler.yaml").write_text(json.dumps(configuration))
    worlds = [world(number) for number in range(WORLDS)]
    async with administrator(cluster) as client, classes(client), settled(client, worlds):
        nodes, pods, budgets = [(await client.list(kind)).items for kind in (NODES, PODS, BUDGETS)]
        pods = [pod for pod in pods if pod["metadata"]["namespace"] == NAMESPACE]
        cluster.start("kube-scheduler", f"--config={tmp_path / 'scheduler.yaml'}")
        try:
            await each(client.create(PODS, one.preemptor, NAMESPACE) for one in worlds)
            await until(lambda: decided(client, worlds))
            left = {pod["metadata"]["name"]: pod for pod in (await client.list(PODS, NAMESPACE)).items}
        finally:
            cluster.stop("kube-scheduler")
    same = better = with_victims = 0
    for one in worlds:
        ours = Side(one.number, nodes, pods, budgets)
        wish = left[one.preemptor["metadata"]["name"]]
        theirs = {pod.name for pod in ours.pods} - left.keys()
        plan = ours.stage.plan(msgspec.convert({**wish, "spec": {**wish["spec"], "nodeName": ""}}, manifest.Pod))
        mine = set() if plan is None else {victim.pod.name for victim in plan.victims}
        assert bool(wish["spec"].get("nodeName")) == (plan is not None), f"world {one.number}"
        cost, limit = ours.cost(mine), ours.cost(theirs)
        if cost is not None and limit is not None:
            assert cost <= limit, f"world {one.number}: {sorted(mine)}, kube-scheduler {sorted(theirs)}"
            with_victims += 1
            same += mine == theirs
            better += cost < limit
    print(f"{WORLDS} worlds: {with_victims} with victims, {same} with the same, {better} with fewer or lower ones")
    assert with_victims > WORLDS / 2
    assert same > with_victims / 2


async def decided(client: Client, worlds: Sequence[World]) -> bool:
    """Whether each pod is bound, or waits without hope."""
    pods = {pod["metadata"]["name"]: pod for pod in (await client.list(PODS, NAMESPACE)).items}
    return all(_decided(pods[one.preemptor["metadata"]["name"]]) for one in worlds)


def _decided(pod: Any) -> bool:
    reported = any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))
    return bool(pod["spec"].get("nodeName")) or (reported and not pod["status"].get("nominatedNodeName"))


@asynccontextmanager
async def scheduler(cluster: Cluster) -> AsyncIterator[Service]:
    """Ours, until it is killed."""
    transport = HttpTransport(load(cluster.kubeconfig))
    service = Service(Client(transport), INTERPRETER, lambda pod: pod.spec.scheduler_name == "subak")
    running = asyncio.create_task(service.run())
    try:
        await asyncio.wait_for(service.ready.wait(), PATIENCE)
        yield service
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await transport.close()


def sharing(name: str, rank: str) -> dict[str, Any]:
    """A pod that takes most of a card, and its time to leave."""
    limits = {"koordinator.sh/gpu-memory-ratio": "80", "koordinator.sh/gpu-core": "80"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits, "requests": limits}}
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": "subak", "priorityClassName": rank, "containers": [container]},
    }


async def test_cards_go_to_the_more_important_pod_though_the_scheduler_is_killed_midway(cluster: Cluster) -> None:
    hardware = machines({"name": "full", "profile": "koordinator", "count": 1})
    cards = len(hardware[0].devices)
    low = [f"low-{i}" for i in range(cards)]
    async with administrator(cluster) as client, classes(client), fake_nodes(client, hardware):

        async def pod(name: str) -> Any:
            return await client.get(PODS, name, NAMESPACE)

        async def bound(*names: str) -> bool:
            return all([(await pod(name))["spec"].get("nodeName") for name in names])

        async def leaving() -> list[str]:
            listed = (await client.list(PODS, NAMESPACE)).items
            return [each["metadata"]["name"] for each in listed if "deletionTimestamp" in each["metadata"]]

        async def sent_away() -> bool:
            return len(await leaving()) == 1 and bool((await pod("vip"))["status"].get("nominatedNodeName"))

        try:
            async with scheduler(cluster):
                for name in low:
                    await client.create(PODS, sharing(name, "low"), NAMESPACE)
                await until(lambda: bound(*low))
                await client.create(PODS, sharing("vip", "top"), NAMESPACE)
                await until(sent_away)
            (victim,) = await leaving()
            marks = [each for each in (await pod(victim))["status"]["conditions"] if each["type"] == "DisruptionTarget"]
            assert [(each["status"], each["reason"]) for each in marks] == [("True", "PreemptionByScheduler")]
            async with scheduler(cluster) as service:
                await gone(client, PODS, victim, NAMESPACE)  # as a kubelet does when the containers have ended
                await until(lambda: bound("vip"))
                assert service.counters.evicted == 0
            assert await leaving() == []
        finally:
            for name in (*low, "vip"):
                await gone(client, PODS, name, NAMESPACE)
