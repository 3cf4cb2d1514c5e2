"""Fake nodes on a real API server: objects as kubelet and the vendors' agents would write them, with nobody behind.

The hardware is described as for `subak up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from subak.dialects.mark import MARK, NAMESPACE
from subak.local.custom import CRDS
from subak.local.hardware.nodes import Nodes
from subak.model.manifest import DEVICES
from subak.node.machine import Machine
from tests.e2e.cluster import Cluster
from tinykube.client import Client
from tinykube.http import HttpTransport
from tinykube.kubeconfig import load
from tinykube.resource import LEASES, NAMESPACES, NODES, Resource
from tinykube.status import ApiError
from tinykube.yaml import read

DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)
PATIENCE = 30.0
AT_ONCE = 32
LIFETIME = 86_400


@asynccontextmanager
async def administrator(cluster: Cluster) -> AsyncIterator[Client]:
    """A client that may do everything."""
    transport = HttpTransport(load(cluster.kubeconfig))
    try:
        yield Client(transport)
    finally:
        await transport.close()


@asynccontextmanager
async def fake_nodes(client: Client, machines: Sequence[Machine], marked: bool = True) -> AsyncIterator[Nodes]:
    """Nodes for these machines, which renew their leases and answer handshakes; removed at the end.

    They are `marked` as if our own agent ran there, or pods would wait for vendors' agents to release the nodes.
    """
    await define_devices(client)
    nodes = Nodes(client, machines)
    await nodes.start()
    if marked:
        await mark_nodes(client, [machine.name for machine in machines])
    running = asyncio.create_task(nodes.run())
    try:
        yield nodes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for machine in machines:
            for resource, namespace in ((NODES, ""), (LEASES, "kube-node-lease"), (LEASES, NAMESPACE), (DEVICES, "")):
                try:
                    await client.delete(resource, machine.name, namespace)
                except ApiError as error:
                    if error.code != 404:
                        raise


async def mark_nodes(client: Client, names: Iterable[str]) -> None:
    """Mark nodes as our agent does, with Leases that outlive any test."""
    try:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    slots = asyncio.Semaphore(AT_ONCE)

    async def mark(name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": LIFETIME, "renewTime": now}
        async with slots:
            await client.create(LEASES, {"metadata": {"name": name, "labels": {MARK: ""}}, "spec": spec}, NAMESPACE)
            await client.patch(NODES, name, "", {"metadata": {"annotations": {MARK: "1"}}})

    await asyncio.gather(*(mark(name) for name in names))


async def define_devices(client: Client) -> None:
    """Let the server serve Koordinator's Device objects, and wait until it does."""
    try:
        await client.create(DEFINITIONS, dict(read((CRDS / "devices.yaml").read_text()).content))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.list(DEVICES)
                return
            except ApiError as error:
                if error.code != 404:
                    raise
                await asyncio.sleep(0.05)
