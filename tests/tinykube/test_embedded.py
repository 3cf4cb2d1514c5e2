"""The client and the embedded API server, as parts of one process use them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from subak.model import manifest
from tests.support import virtual
from tests.support.custom import CUSTOM
from tests.support.virtual import until
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.codec import Bookmark, WatchEvent
from tinykube.discovery import Discovery
from tinykube.exec import execute
from tinykube.http import HttpTransport
from tinykube.reflector import Reflector
from tinykube.resource import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from tinykube.server import bootstrap, http, tls
from tinykube.server.kubelet import LogOptions
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError


def server(history: int = 8_192) -> Server:
    made = Server(Store(history=history, custom=CUSTOM))
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
        LEASES, PRIORITY_CLASSES,
        *(Resource(each.group, each.version, each.plural, each.namespaced, each.kind) for each in CUSTOM),
    )  # fmt: skip

    async def story() -> None:
        discovery = await Discovery.of(Client(server()))
        for resource in ours:
            assert discovery.kind(resource.api_version, resource.kind).resource == resource
            assert discovery.find(str(resource)).resource == resource

    virtual.run(story())


class Echo:
    """A program that prints its input, as far as it comes, and ends with 7."""

    def __init__(self) -> None:
        self.size = (0, 0)
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def write(self, data: bytes) -> None:
        await self._input.put(data)

    async def end_input(self) -> None:
        await self._input.put(None)

    async def resize(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield 2, b"listening"
        while (data := await self._input.get()) is not None:
            yield 1, data

    async def wait(self) -> int:
        return 7

    async def close(self) -> None:
        pass


class OneProgram:
    """A kubelet whose only program is Echo."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.session = Echo()

    async def logs(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        async def lines() -> AsyncIterator[bytes]:
            yield f"{pod['metadata']['name']} {options.container} {options.tail_lines}\n".encode()

        return lines()

    async def execute(
        self, pod: dict[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Echo:
        self.asked.append((pod["metadata"]["name"], container, list(command), stdin, tty))
        return self.session

    async def summary(self, node: str) -> dict[str, Any]:
        raise NotImplementedError


async def test_exec_and_logs_over_https(tmp_path: Path) -> None:
    kubelet = OneProgram()
    made = server()
    made.kubelet = kubelet
    endpoint = http.Listener(made, tls.identity())
    await endpoint.start()
    (tmp_path / "config").write_text(endpoint.kubeconfig())
    transport = HttpTransport(kubeconfig.load(tmp_path / "config"))
    client = Client(transport)
    try:
        await client.create(NODES, {"metadata": {"name": "n1"}})
        await create(client, "a")
        await client.bind("a", "default", "n1")
        chunks = await client.logs("a", "default", container="c", tail_lines=5)
        assert [chunk async for chunk in chunks] == [b"a c 5\n"]

        session = await execute(transport, "a", "default", ["cat"], container="c", stdin=True)
        await session.write(b"hello")
        await session.end_input()
        assert [part async for part in session.output()] == [(2, b"listening"), (1, b"hello")]
        assert session.exit_code() == 7
        assert kubelet.asked == [("a", "c", ["cat"], True, False)]
        await session.close()

        with pytest.raises(ApiError, match='pods "gone" not found'):
            await execute(transport, "gone", "default", ["cat"])
    finally:
        await transport.close()
        await endpoint.stop()
