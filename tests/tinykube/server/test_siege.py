"""A server with few descriptors, many clients that want nothing good, and one that wants to be served."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.support.siege import Besieged, besieged

DESCRIPTORS = 1_024
MANY = 2_000
HALF = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: "
PATIENCE = 60.0


def affordable(wanted: int) -> int:
    """As many sockets as the tests themselves may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(wanted, soft - 300)


@asynccontextmanager
async def served(server: Besieged) -> AsyncIterator[list[int]]:
    """The codes of good requests meanwhile: half of them on a connection that stays, half on new ones."""
    codes: list[int] = []
    over = asyncio.Event()
    timeout = aiohttp.ClientTimeout(total=PATIENCE)

    async def ask(session: aiohttp.ClientSession) -> None:
        while True:
            last = over.is_set()
            codes.append(await server.status(session))
            if last:
                return
            await asyncio.sleep(0.01)

    new = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(timeout=timeout) as one,
        aiohttp.ClientSession(timeout=timeout, connector=new) as two,
        asyncio.TaskGroup() as asking,
    ):
        for each in (one, two):
            asking.create_task(ask(each))
        yield codes
        over.set()


def idle(port: int) -> socket.socket:
    """A connection on which nothing is said, not even in TLS."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


async def half_sent(server: Besieged) -> asyncio.StreamWriter:
    """A connection on which a request begins."""
    untrusting = ssl.create_default_context()
    untrusting.check_hostname, untrusting.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=untrusting)
    writer.write(HALF)
    return writer


async def test_idle_connections_and_half_sent_headers_lock_nobody_out(tmp_path: Path) -> None:
    async with besieged(DESCRIPTORS, tmp_path / "log") as server, served(server) as codes:
        connections = [await asyncio.to_thread(idle, server.port) for _ in range(affordable(MANY))]
        halves = await asyncio.gather(*(half_sent(server) for _ in range(100)), return_exceptions=True)
        before = len(codes)
        async with asyncio.timeout(PATIENCE):
            while len(codes) < before + 4:
                await asyncio.sleep(0.01)
        for connection in connections:
            connection.close()
        for writer in halves:
            if isinstance(writer, asyncio.StreamWriter):
                writer.transport.abort()
    assert set(codes) == {200}
    assert server.log.read_text() == ""


async def test_a_server_without_descriptors_waits_quietly(tmp_path: Path) -> None:
    async with besieged(256, tmp_path / "log") as server, aiohttp.ClientSession() as session:
        assert await server.status(session) == 200
        await server.command("take")
        connections = [idle(server.port) for _ in range(100)]
        for _ in range(100):
            assert await server.status(session) == 200, "who is inside is served"
            await asyncio.sleep(0.01)
        await server.command("give")
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as late:
            assert await server.status(late) == 200
        for connection in connections:
            connection.close()
    lines = server.log.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("WARNING: a connection cannot be accepted: Too many open files; ")
