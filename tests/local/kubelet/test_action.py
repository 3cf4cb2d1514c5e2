from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from subak.local.kubelet import action
from subak.local.kubelet.action import Result
from subak.local.kubelet.pod import Action, Container
from subak.local.runtime.none import Pretended
from tests.support.kubelet.pods import container


@asynccontextmanager
async def server(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        if not answer:
            await reader.read()  # until the other side gives up
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def carry_out(what: dict[str, Any], port: int = 0, timeout: float = 5.0) -> Result:
    spec = msgspec.convert(container(ports=[{"name": "web", "containerPort": port}]), Container)
    return await action.run(msgspec.convert(what, Action), spec, Pretended("x"), {}, timeout)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("200 OK", Result(True)),
        ("399 Odd", Result(True)),
        ("500 Out of Order", Result(False, "HTTP probe failed with statuscode: 500")),
    ],
)
async def test_a_page_is_good_if_its_status_is(status: str, expected: Result) -> None:
    async with server(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()) as port:
        for given in (port, str(port), "web"):
            assert await carry_out({"httpGet": {"port": given, "path": "healthz"}}, port) == expected


async def test_a_port_is_good_if_somebody_listens() -> None:
    async with server(b"hello") as port:
        assert (await carry_out({"tcpSocket": {"port": port}})).good
    why = f"dial tcp 127.0.0.1:{port}: connection refused"
    assert await carry_out({"tcpSocket": {"port": port}}) == Result(False, why)
    page = f'Get "http://127.0.0.1:{port}/": connection refused'
    assert await carry_out({"httpGet": {"port": port}}) == Result(False, page)


async def test_who_does_not_answer_in_time_has_failed() -> None:
    async with server(b"") as port:
        assert await carry_out({"httpGet": {"port": port}}, timeout=0.1) == Result(False, "no answer within 0.1 s")


async def test_a_port_of_an_unknown_name_is_named() -> None:
    result = await carry_out({"tcpSocket": {"port": "nope"}})
    assert "couldn't find port: 'nope' in container main" in result.output


async def test_a_container_without_a_process_runs_nothing() -> None:
    result = await carry_out({"exec": {"command": ["true"]}})
    assert (result.good, "has no process" in result.output) == (False, True)
