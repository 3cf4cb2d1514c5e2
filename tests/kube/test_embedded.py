"""The client and the embedded API server, as parts of one process use them."""

from __future__ import annotations

import asyncio
from collections import Counter

from subak.kube.client import Client
from subak.kube.codec import Bookmark, WatchEvent
from subak.kube.discovery import Discovery
from subak.kube.reflector import Reflector
from subak.kube.resource import (
    CONFIG_MAPS,
    DEVICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from subak.local.api import bootstrap
from subak.local.api.server import Server
from subak.local.api.store import Store
from subak.model import manifest
from tests import virtual
from tests.virtual import until


def server(history: int = 8_192) -> Server:
    made = Server(Store(history=history))
    bootstrap.fill(made.registry)
    return made


async def create(client: Client, name: str) -> None:
    container = {"name": "c", "image": "x"}
    await client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}}, "default")


def test_what_happens_while_a_watcher_reads_is_told_at_once() -> None:
    async def story() -> None:
        client = Client(server())
        events = await client.watch(PODS, revision=(await client.list(PODS)).revision, type=manifest.Pod)
        await create(client, "a")
        first = await anext(events)
        await create(client, "b")  # before the watcher asks for more
        async with asyncio.timeout(1):
            second = await anext(events)
        names = [event.object.name for event in (first, second) if isinstance(event, WatchEvent)]
        assert names == ["a", "b"]

    virtual.run(story())


def test_a_quiet_watch_brings_bookmarks() -> None:
    async def story() -> None:
        client = Client(server())
        revision = (await client.list(PODS)).revision
        events = await client.watch(PODS, revision=revision, type=manifest.Pod)
        await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
        async with asyncio.timeout(100):
            event = await anext(events)
        assert isinstance(event, Bookmark)
        assert int(event.revision) > int(revision)

    virtual.run(story())


def test_a_reflector_that_is_left_far_behind_lists_again() -> None:
    async def story() -> None:
        client = Client(server(history=50))
        told: Counter[str] = Counter()
        reflector = Reflector(client, PODS, manifest.Pod, lambda change, pod: told.update([change]))
        task = asyncio.create_task(reflector.run())
        await reflector.synced.wait()
        await asyncio.sleep(0.1)
        for i in range(200):
            await create(client, f"p{i}")  # without giving way to the reflector
        await until(lambda: len(reflector.objects) == 200)
        assert told == {"ADDED": 200}
        task.cancel()

    virtual.run(story())


def test_every_kind_that_we_name_is_there_under_that_name() -> None:
    ours = (
        PODS, NODES, NAMESPACES, EVENTS, CONFIG_MAPS, SECRETS, SERVICES, SERVICE_ACCOUNTS, RESOURCE_QUOTAS,
        LEASES, PRIORITY_CLASSES, POD_GROUPS, QUEUES, DEVICES,
    )  # fmt: skip

    async def story() -> None:
        discovery = await Discovery.of(Client(server()))
        for resource in ours:
            assert discovery.kind(resource.api_version, resource.kind).resource == resource
            assert discovery.find(str(resource)).resource == resource

    virtual.run(story())
