"""An application behind a door: strangers, slow bodies and bytes that are no request."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.support.junk import nothing_logged
from tinykube.door import Bounds
from tinykube.house import House

DEADLINE = 10.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read())


@pytest.fixture
async def house() -> AsyncIterator[House]:
    application = web.Application()
    application.router.add_post("/", echo)
    house = House(application, bounds=Bounds(4, 2), longest=0.2)
    await house.open("127.0.0.1")
    yield house
    await house.close()


async def said(streams: Streams) -> bytes:
    async with asyncio.timeout(DEADLINE):
        try:
            return await streams[0].read()
        except ConnectionError:
            return b""


async def connected(house: House, first: bytes = b"") -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", house.port)
    streams[1].write(first)
    return streams


async def asked(house: House) -> str:
    async with aiohttp.ClientSession() as session, session.post(f"http://127.0.0.1:{house.port}/", data=b"x") as answer:
        return await answer.text()


async def test_idle_connections_lock_nobody_out(house: House) -> None:
    idle = [await connected(house, b"POST / HTTP/1.1\r\n") for _ in range(10)]
    assert await asked(house) == "x"
    for _, writer in idle:
        writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(house: House) -> None:
    streams = await connected(house, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    assert (await said(streams)).startswith(b"HTTP/1.1 504 ")
    streams[1].close()


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\n: secret\r\n\r\n", b"POST / x\r\n\r\n"])
async def test_what_is_no_request_is_refused_and_not_logged(house: House, sent: bytes) -> None:
    with nothing_logged():
        streams = await connected(house, sent)
        assert b" 400 Bad Request" in await said(streams)
        streams[1].close()
        assert await asked(house) == "x"


async def test_what_is_packed_stays_packed(house: House) -> None:
    """A few bytes may stand for gigabytes; no API server packs what it sends here."""
    packed = gzip.compress(bytes(1 << 20))
    headers = {"Content-Encoding": "gzip"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{house.port}/", data=packed, headers=headers) as answer,
    ):
        assert await answer.read() == packed
