"""`subak controller` on a real cluster, with the rights of its manifests only."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.controller import apply_manifests, controller, free_lease, until_pods
from tests.e2e.fakes import administrator, fake_nodes
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import NAMESPACES, PODS

SLICE = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}


@pytest.fixture(scope="module", autouse=True)
def _manifests(cluster: Cluster) -> None:
    apply_manifests(cluster)


@asynccontextmanager
async def namespace(client: Client, name: str) -> AsyncIterator[str]:
    """A namespace of a test, whose pods go at the end."""
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    async with asyncio.timeout(30):
        while not (await client.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts")).body.count(b'"default"'):
            await asyncio.sleep(0.05)
    try:
        yield name
    finally:
        for pod in (await client.list(PODS, name)).items:
            await client.delete(PODS, pod["metadata"]["name"], name, grace=0)


def pod(name: str, limits: dict[str, str], scheduler: str = "subak") -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}


async def test_a_controller_with_the_manifests_rights_binds_a_pod_and_gives_the_lease_back(cluster: Cluster) -> None:
    hardware = machines({"name": "gpu", "profile": "volcano", "count": 2})
    async with (
        administrator(cluster) as client,
        fake_nodes(client, hardware),
        namespace(client, "one-pod") as space,
        controller(cluster, client) as running,
    ):
        await client.create(PODS, pod("a", SLICE), space)
        pods = await until_pods(client, space, lambda pods: bool(pods["a"]["spec"].get("nodeName")))
        assert pods["a"]["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"].endswith(",NVIDIA,1000,0:;")
        assert (await running.until_ready("leader"))["leader"] == "one"
        assert await running.end(signal.SIGTERM) == 0
        assert not [line for line in running.lines() if line["level"] in ("error", "warning")], running.log
        await free_lease(client)
