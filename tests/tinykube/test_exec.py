"""A program inside a container, seen from outside: output, input, exit code, refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.tinykube.listening import Handler, listening
from tinykube.endpoint import Endpoint
from tinykube.exec import V4, V5, ExecSession, execute
from tinykube.http import HttpTransport
from tinykube.status import ApiError

SUCCESS = {"status": "Success", "metadata": {}}
EXIT_3 = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "message": "command terminated with non-zero exit code",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


@asynccontextmanager
async def session(handler: Handler, *, stdin: bool = False, tty: bool = False) -> AsyncIterator[ExecSession]:
    async with listening(handler) as url:
        transport = HttpTransport(Endpoint(url))
        try:
            started = await execute(transport, "a", "default", ["cat", "-n"], container="c", stdin=stdin, tty=tty)
            yield started
            await started.close()
        finally:
            await transport.close()


def outcome(content: object) -> bytes:
    return b"\x03" + json.dumps(content).encode()


async def test_output_and_exit_code() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query.getall("command") == ["cat", "-n"]
        assert (request.query["container"], request.query["stderr"]) == ("c", "true")
        socket = web.WebSocketResponse(protocols=[V5])
        await socket.prepare(request)
        for message in (b"\x01", b"\x02", b"\x01out", b"\x02err", outcome(EXIT_3)):
            await socket.send_bytes(message)
        await socket.close()
        return socket

    async with session(handler) as started:
        assert [part async for part in started.output()] == [(1, b"out"), (2, b"err")]
        assert started.exit_code() == 3


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_input_and_terminal_reach_the_program(protocol: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert (request.query["stdin"], request.query["tty"], request.query["stderr"]) == ("true", "true", "false")
        socket = web.WebSocketResponse(protocols=[protocol])
        await socket.prepare(request)
        got = [await socket.receive_bytes() for _ in range(3 if protocol == V5 else 2)]
        await socket.send_bytes(b"\x01" + b"|".join(got))
        await socket.send_bytes(outcome(SUCCESS))
        await socket.close()
        return socket

    async with session(handler, stdin=True, tty=True) as started:
        await started.resize(80, 24)
        await started.write(b"hello")
        await started.end_input()
        output = [part async for part in started.output()]
        end = b"|\xff\x00" if protocol == V5 else b""
        assert output == [(1, b'\x04{"Width":80,"Height":24}|\x00hello' + end)]
        assert started.exit_code() == 0


async def test_a_program_that_could_not_be_started_says_why() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=[V5])
        await socket.prepare(request)
        await socket.send_bytes(outcome({"status": "Failure", "reason": "InternalError", "message": "no such file"}))
        await socket.close()
        return socket

    async with session(handler) as started:
        assert [part async for part in started.output()] == []
        with pytest.raises(ApiError, match="no such file"):
            started.exit_code()


async def test_a_connection_that_breaks_leaves_no_exit_code() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=[V5])
        await socket.prepare(request)
        await socket.send_bytes(b"\x01half")
        assert request.transport is not None
        request.transport.abort()
        return socket

    async with session(handler) as started:
        assert [part async for part in started.output()] == [(1, b"half")]
        with pytest.raises(ConnectionError, match="before the program ended"):
            started.exit_code()


async def test_a_refusal_says_what_the_server_says() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        status = {"kind": "Status", "code": 404, "reason": "NotFound", "message": 'pods "a" not found'}
        return web.json_response(status, status=404)

    with pytest.raises(ApiError, match='pods "a" not found') as caught:
        async with session(handler):
            pass
    assert caught.value.code == 404


async def test_who_is_refused_has_asked_once() -> None:
    """Asking again for the reason might run something after all: the refusal may have been of the moment."""
    asked: list[list[str]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(request.query.getall("command"))
        return web.json_response({"kind": "Status", "reason": "TooManyRequests", "message": "later"}, status=429)

    with pytest.raises(ApiError, match="later"):
        async with session(handler):
            pass
    assert asked == [["cat", "-n"]]
