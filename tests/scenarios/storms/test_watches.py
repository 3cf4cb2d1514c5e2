"""Hundreds of watches on objects that change all the time, half of which never read: they cost a bounded memory.

Those that read hear of every change, once.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.live import Live, live
from tests.support.storm import MIB, client_of, forget_peak, peak, pod, until_phase
from tinykube import kubeconfig
from tinykube.client import Client
from tinykube.codec import WatchEvent
from tinykube.resource import CONFIG_MAPS, PODS

DEAF, READERS = 200, 200
CHANGES, LOAD = 300, 40_000
GROWTH = DEAF * 2 * MIB
"""What is under way to each deaf watch.  It is sent 12 MB, of which the kernel's buffers take about 4."""


@pytest.mark.long
def test_watches_that_never_read_cost_nobody_else_anything() -> None:
    with live("--runtime", "none") as cluster:
        asyncio.run(storm(cluster))
        assert cluster.stop() == 0


async def storm(cluster: Live) -> None:
    client, reader = client_of(cluster.kubeconfig), client_of(cluster.kubeconfig)
    for name in ("loud", "small"):
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default")
    revision = await client.latest(CONFIG_MAPS, "default")
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for _ in range(DEAF):
            stack.push_async_callback(close, await deaf(cluster.kubeconfig, revision))
        hearing = [group.create_task(hear(reader, revision)) for _ in range(READERS)]
        before = forget_peak(cluster.process.pid)
        for number in range(1, CHANGES + 1):
            for name, load in (("loud", "x" * LOAD), ("small", "")):
                await client.patch(CONFIG_MAPS, name, "default", {"data": {"number": str(number), "load": load}})
            if number == CHANGES // 2:
                await client.create(PODS, pod("other", "true"), "default")
                await until_phase(client, "other", "Running")
        assert Counter([await each for each in hearing]) == {tuple(range(1, CHANGES + 1)): READERS}
        grown = peak(cluster.process.pid) - before
        print(f"{CHANGES} changes heard {READERS} times, {DEAF} deaf, grown {grown // MIB} MiB")
        assert grown < GROWTH
    assert (await client.get(CONFIG_MAPS, "loud", "default"))["data"]["number"] == str(CHANGES)
    await reader.close()
    await client.close()


async def hear(client: Client, revision: str) -> tuple[int, ...]:
    """The numbers of the changes, as a watch tells them, up to the last."""
    heard: list[int] = []
    async for event in await client.watch(CONFIG_MAPS, "default", revision=revision, fields="metadata.name=small"):
        if isinstance(event, WatchEvent):
            heard.append(int(event.object["data"]["number"]))
            if heard[-1] == CHANGES:
                break
    return tuple(heard)


async def deaf(file: Path, revision: str) -> asyncio.StreamWriter:
    """Ask for a watch of what is loud, see that it begins, and read no further."""
    endpoint = kubeconfig.load(file)
    identity = await endpoint.credentials.identity()
    address = urlsplit(endpoint.server)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.setblocking(False)
    await asyncio.get_running_loop().sock_connect(line, (address.hostname, address.port))
    reading, writing = await asyncio.open_connection(
        sock=line, ssl=endpoint.tls(identity), server_hostname=address.hostname, limit=4096
    )
    path = f"{CONFIG_MAPS.path('default')}?watch=true&resourceVersion={revision}&fieldSelector=metadata.name%3Dloud"
    headers = "".join(f"{name}: {value}\r\n" for name, value in identity.headers.items())
    writing.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n{headers}\r\n".encode())
    assert b" 200 " in await reading.readline()
    return writing


async def close(writing: asyncio.StreamWriter) -> None:
    writing.transport.abort()
