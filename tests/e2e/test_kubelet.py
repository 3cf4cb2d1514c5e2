"""The local kubelet against a real API server: all that it says is understood, and pods come and go as they should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from subak.local.kubelet.kubelet import Kubelet
from tests.e2e.cluster import Cluster
from tests.support.kubelet.harness import Counting, Harness, add_node, running
from tests.support.kubelet.pods import container
from tests.support.kubelet.scripted import ScriptedDevices, ScriptedRuntime
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.resource import CONFIG_MAPS, NODES
from tinykube.server.store import Store

NODE = "kubelet-node"
PATIENCE = 30.0


@asynccontextmanager
async def harness(cluster: Cluster, directory: Path) -> AsyncIterator[Harness]:
    transport = HttpTransport(load(cluster.kubeconfig))
    client, wire = Client(transport), Counting(transport)
    runtime, devices = ScriptedRuntime(), ScriptedDevices()
    kubelet = Kubelet(Client(wire), runtime, devices, [NODE], directory, processes=False, clock=time.time)
    place = Harness(client, Store(), kubelet, runtime, devices, wire)
    try:
        async with running(place):
            yield place
    finally:
        await runtime.close()
        await transport.close()


async def create(place: Harness, name: str, *containers: dict[str, Any], **spec: Any) -> None:
    usual = {"nodeName": NODE, "automountServiceAccountToken": False}
    await place.create(*containers, name=name, **{**usual, **spec})


async def phase(place: Harness, phase: str, name: str) -> dict[str, Any]:
    return await place.until(lambda pod: pod["status"]["phase"] == phase, name, PATIENCE)


async def test_pods_live_on_a_real_api_server_as_on_ours(cluster: Cluster, tmp_path: Path) -> None:
    async with harness(cluster, tmp_path) as place:
        await add_node(place.client, NODE)
        await place.add(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"level": "info"}})
        await lives(place)
        await deaths(place)
    async with harness(cluster, tmp_path) as place:
        await afterlives(place)
        await place.client.delete(CONFIG_MAPS, "settings", "default")
        await place.client.delete(NODES, NODE)


async def lives(place: Harness) -> None:
    env = [{"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}}]
    await create(place, "service", container(env=env), init=[container("setup")], restartPolicy="OnFailure")
    await place.until(lambda _: "service/setup" in place.runtime.containers, "service", PATIENCE)
    place.runtime["service/setup"].exit(0)
    await phase(place, "Running", "service")
    assert place.runtime["service/main"].spec.env["LEVEL"] == "info"
    await create(place, "crasher")
    await phase(place, "Running", "crasher")
    for attempt in (1, 2):
        place.runtime["crasher/main"].exit(attempt)
        async with asyncio.timeout(PATIENCE):
            while attempt == 1 and len(place.runtime.attempts("crasher/main")) < 2:
                await asyncio.sleep(0.02)
    pod = await place.until(
        lambda pod: "CrashLoopBackOff" in str(pod["status"]["containerStatuses"][0]["state"]), "crasher", PATIENCE
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 2
    await create(place, "job", restartPolicy="Never")
    await phase(place, "Running", "job")
    place.runtime["job/main"].exit(0)
    await phase(place, "Succeeded", "job")
    await create(place, "big", container(resources={"requests": {"cpu": "100"}}))
    refused = await phase(place, "Failed", "big")
    assert refused["status"]["reason"] == "OutOfcpu"


async def deaths(place: Harness) -> None:
    for name in ("crasher", "job", "big"):
        await place.delete(name)
        await place.gone(name, PATIENCE)
    await create(place, "forced")
    await phase(place, "Running", "forced")
    await place.delete("forced", grace=0)
    await place.gone("forced", PATIENCE)
    assert await asyncio.wait_for(place.runtime["forced/main"].wait(), PATIENCE) == 143


async def afterlives(place: Harness) -> None:
    await place.until(lambda _: "service/setup" in place.runtime.containers, "service", PATIENCE)
    place.runtime["service/setup"].exit(0)
    pod = await place.until(
        lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1 and pod["status"]["phase"] == "Running",
        "service",
        PATIENCE,
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 255
    await place.delete("service")
    await place.gone("service", PATIENCE)
