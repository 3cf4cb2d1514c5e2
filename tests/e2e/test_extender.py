"""The real kube-scheduler with our extender: it places, we choose the cards and bind."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from subak.dialects.interpreter import Interpreter
from subak.local.hardware import profiles
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.extender.configuration import configuration
from subak.scheduler.messages import DeviceSeen, NodeSeen, PodSeen
from tests.e2e import runner
from tests.e2e.cluster import Cluster
from tests.e2e.fakes import administrator, fake_nodes
from tests.support.machines import INTERPRETER, machines
from tinykube.client import Client
from tinykube.resource import NODES, PODS

EXAMPLES = Path(__file__).parents[2] / "examples"
PORT = 8118
PODS_IN_BURST = int(os.environ.get("SUBAK_EXTENDER_PODS", "150"))
KILLS = 3

SEEDS = {
    "volcano/gpu-pod1": "volcano.sh/gpu-index",
    "volcano/gpu-pod2": "volcano.sh/gpu-index",
    "koordinator/pod": "scheduling.koordinator.sh/device-allocated",
    "moore-threads/pod": "mthreads.com/gpu-index",
    "iluvatar/pod": "hami.io/iluvatar-vgpu-devices-allocated",
    "iluvatar/bi-v150": "hami.io/BI-V150-devices-allocated",
    "metax/sgpu/pod": "metax-tech.com/gpu-devices-allocated",
    "metax/gpu/pod": "hami.io/metax-gpu-devices-allocated",
    "shared/1-hami": "hami.io/vgpu-devices-allocated",
}
"""The documents' pods, and where each finds its cards."""


@contextmanager
def kube_scheduler(cluster: Cluster) -> Iterator[None]:
    """kube-scheduler with the sample configuration, impatient."""
    content = configuration(Interpreter().resources, f"http://{runner.HOST}:{PORT}")
    content["clientConnection"] = {"kubeconfig": str(cluster.kubeconfig), "qps": 5000, "burst": 5000}
    content |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
    path = cluster.directory / "extended.json"
    path.write_text(json.dumps(content))
    cluster.start("kube-scheduler", f"--config={path}")
    try:
        yield
    finally:
        cluster.stop("kube-scheduler")


@asynccontextmanager
async def created(client: Client, pods: dict[str, dict[str, Any]]) -> AsyncIterator[None]:
    """These pods, by name; removed at the end."""
    for name, body in pods.items():
        body["metadata"] = {**body.get("metadata", {}), "name": name, "namespace": "default"}
        await client.create(PODS, body, "default")
    try:
        yield
    finally:
        for name in pods:
            await client.delete(PODS, name, "default", grace=0)


async def bound(client: Client, count: int) -> dict[str, dict[str, Any]]:
    """Wait until so many pods have nodes; gives all pods."""
    async with asyncio.timeout(60):
        while True:
            found = {each["metadata"]["name"]: each for each in (await client.list(PODS, "default")).items}
            if sum(bool(each["spec"].get("nodeName")) for each in found.values()) >= count:
                return found
            await asyncio.sleep(0.05)


async def check_cards(client: Client) -> Core:
    """Check that all records can be read, and that no card holds more than it can; gives what a new core knows."""
    core = Core()
    for device in (await client.list(manifest.DEVICES, type=manifest.Device)).items:
        core.handle(DeviceSeen(device))
    for node in (await client.list(NODES, type=manifest.Node)).items:
        core.handle(NodeSeen(node))
    for pod in (await client.list(PODS, "default", type=manifest.Pod)).items:
        core.handle(PodSeen(pod))
        assert core.snapshot.bookings[pod.key].placement.grants, f"{pod.key} holds no card"
    for each in core.snapshot:
        for card in core.snapshot.cards(each.name):
            assert min(card.memory_free, card.cores_free) >= 0, f"{each.name}/{card.device.index} is overcommitted"
    return core


async def test_the_documents_pods_get_their_cards_through_kube_scheduler(cluster: Cluster) -> None:
    pods = {}
    for path in SEEDS:
        body = yaml.safe_load((EXAMPLES / f"{path}.yaml").read_text())
        body["spec"].setdefault("schedulerName", "hami-scheduler")
        body["spec"]["terminationGracePeriodSeconds"] = 0
        pods[path.replace("/", "-")] = body
    hardware = profiles.default(INTERPRETER)
    async with administrator(cluster) as client, fake_nodes(client, hardware):
        with runner.running(cluster.kubeconfig, f"--extender={runner.HOST}:{PORT}"), kube_scheduler(cluster):
            async with created(client, pods):
                found = await bound(client, len(pods))
                for path, key in SEEDS.items():
                    assert key in found[path.replace("/", "-")]["metadata"]["annotations"], path
                await check_cards(client)


async def test_an_extender_that_is_killed_midway_loses_no_pod_and_overcommits_no_card(cluster: Cluster) -> None:
    limits = {"volcano.sh/gpu-memory": "1000"}
    pods = {
        f"burst-{number}": {
            "spec": {
                "schedulerName": "volcano",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
            }
        }
        for number in range(PODS_IN_BURST)
    }
    cards = {"count": PODS_IN_BURST // 40 + 1, "memory": "10000Mi"}
    hardware = machines({"name": "v", "profile": "volcano", "count": 4, "cards": cards, "cpu": 64})
    async with administrator(cluster) as client, fake_nodes(client, hardware):
        with ExitStack() as stack:
            running = stack.enter_context(ExitStack())
            running.enter_context(runner.running(cluster.kubeconfig, f"--extender={runner.HOST}:{PORT}"))
            async with created(client, pods):
                stack.enter_context(kube_scheduler(cluster))
                for kill in range(1, KILLS + 1):
                    await bound(client, PODS_IN_BURST * kill // (KILLS + 2))
                    running.close()  # killed, whatever it was doing
                    found = await bound(client, 0)
                    assert not all(each["spec"].get("nodeName") for each in found.values()), "it was too late to kill"
                    running.enter_context(runner.running(cluster.kubeconfig, f"--extender={runner.HOST}:{PORT}"))
                await bound(client, len(pods))
                core = await check_cards(client)
                assert len(core.snapshot.bookings) == len(pods)
