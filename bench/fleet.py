"""Fake nodes of `bench rate`: objects as kubelet and Volcano's plugin write them, with nobody behind.

Each offers the same memory of its cards twice: as Volcano's resource, which Subak counts by cards, and as a plain
extended resource, which kube-scheduler counts by nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from subak.local.hardware import objects
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, NodeSeen, PodSeen
from tests.support.machines import machines
from tinykube.client import Client
from tinykube.resource import EVENTS, NODES, PODS

SHARED = "volcano.sh/gpu-memory"
PLAIN = "example.com/gpu-memory"
CARD_MIB = 16_384
SLICE_MIB = 1_024
AT_ONCE = 128
"""Requests of the client that are under way.  With fewer the server would wait for us."""
BEAT_EVERY = 300
"""Seconds after which kubelet writes the status of a node in which nothing has changed."""

T = TypeVar("T")


async def each(things: Iterable[T], do: Callable[[T], Awaitable[object]], at_once: int = AT_ONCE) -> None:
    """Do something with each of them, so many at a time."""
    waiting = iter(things)

    async def worker() -> None:
        for thing in waiting:
            await do(thing)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(worker())


def nodes(count: int, cards: int) -> list[dict[str, Any]]:
    """The Node objects."""
    hardware = {"name": "node", "profile": "volcano", "count": count, "taints": []}
    described = machines(hardware | {"cards": {"count": cards, "memory": f"{CARD_MIB}Mi"}})
    found = [objects.node(machine, datetime.now(UTC)) for machine in described]
    for node in found:
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts[PLAIN] = amounts[SHARED]
    return found


async def create_nodes(client: Client, fleet: list[dict[str, Any]]) -> None:
    """Create the nodes, ready for pods: a real API server marks every new node as not ready."""

    async def create(node: dict[str, Any]) -> None:
        await client.create(NODES, node)
        await client.patch(NODES, node["metadata"]["name"], "", {"spec": {"taints": None}})

    await each(fleet, create)


@asynccontextmanager
async def beating(client: Client, fleet: list[dict[str, Any]]) -> AsyncIterator[None]:
    """Write the nodes' status as often as kubelets do, while the context is open."""

    async def beat() -> None:
        while True:
            for node in fleet:
                await asyncio.sleep(BEAT_EVERY / len(fleet))
                status = {"conditions": objects.conditions(datetime.now(UTC))}
                await client.patch_status(NODES, node["metadata"]["name"], "", status)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def pod(name: str, scheduler: str, resource: str) -> dict[str, Any]:
    """A pod that asks for a slice of a card."""
    limits = {resource: str(SLICE_MIB), "cpu": "50m", "memory": "64Mi"}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def running(fleet: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """So many pods that are bound already, with the records that the scheduler's core writes."""
    core = Core()
    for node in fleet:
        core.handle(NodeSeen(msgspec.convert(node, manifest.Node)))
    for number in range(count):
        body = pod(f"running-{number}", "volcano", SHARED)
        core.handle(PodSeen(msgspec.convert(body, manifest.Pod)))
        (bind,) = (each for each in core.cycle(number) if isinstance(each, Bind))
        body["metadata"]["annotations"] = dict(bind.annotations)
        body["spec"]["nodeName"] = bind.node
        yield body


async def create_pods(client: Client, pods: Iterable[dict[str, Any]]) -> None:
    """Create the pods as fast as the server takes them."""
    await each(pods, lambda body: client.create(PODS, body, "default"))


async def delete_pods(client: Client) -> None:
    """Delete all pods, and count that none is left; also what was written about them."""
    found = await client.list(PODS, "default", type=manifest.Object)
    await each(found.items, lambda pod: client.delete(PODS, pod.name, "default", grace=0))
    left = len((await client.list(PODS, "default", type=manifest.Object)).items)
    assert not left, f"{left} pods are left"
    await client.request("DELETE", EVENTS.path("default"))
