"""What clients can do to the listening server: each is answered or hung up on, and none of it reaches the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from tests.support.talk import CONFIG_MAPS, PODS, binding, config_map, pod
from tests.support.wire import DEADLINE, TOKEN, WHO, Wire, house
from tinykube.door import HEADER_BYTES, Bounds
from tinykube.server import http
from tinykube.server.server import MOST_BYTES


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("said", [b"", b"GET /vers", b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_a_stranger_has_little_time_whatever_he_says(said: bytes) -> None:
    async with house(Bounds(64, 16, stranger_seconds=0.2)) as served:
        known, stranger = await served.wire(), await served.wire()
        assert await known.ask() == 200
        stranger.writer.write(said)
        heard = await stranger.rest()
        assert heard.startswith(b"HTTP/1.1 401") if said.endswith(b"\n\r\n") else heard == b""
        assert await known.ask() == 200, "who is known stays"


async def test_who_does_not_even_speak_tls_has_as_little() -> None:
    async with house(Bounds(64, 16, stranger_seconds=0.2)) as served:
        for said in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.endpoint.port)
            writer.write(said)
            await Wire(reader, writer).rest()
            writer.close()
        assert await (await served.wire()).ask() == 200


async def test_the_first_stranger_makes_way_and_who_is_known_does_not() -> None:
    async with house(Bounds(8, 2)) as served:
        known = await served.wire()
        assert await known.ask() == 200
        strangers = [await served.wire() for _ in range(3)]
        assert await strangers[0].rest() == b""
        for each in (known, *strangers[1:]):
            assert await each.ask() == 200


async def test_in_a_full_house_who_rested_longest_makes_way() -> None:
    async with house(Bounds(3, 2)) as served:
        wires = [await served.wire() for _ in range(2)]
        for each in wires:
            assert await each.ask() == 200
        watch = await served.wire()
        watch.writer.write(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n".encode())
        assert await watch.answer() == 200
        assert await wires[0].ask() == 200
        assert await (await served.wire()).ask() == 200
        assert await wires[1].rest() == b"", "the other has asked later, and a watch does not rest"
        assert await wires[0].ask() == 200


async def test_streams_leave_room_for_other_requests() -> None:
    async with house(Bounds(8, 4)) as served:
        watches, codes = [], []
        for _ in range(5):
            watches.append(await served.wire())
            codes.append(await watches[-1].ask(f"{CONFIG_MAPS}?watch=1&resourceVersion=1"))
        assert codes == [200, 200, 200, 200, 429]
        assert await (await served.wire()).ask() == 200
        watches[0].writer.transport.abort()
        async with asyncio.timeout(DEADLINE):
            while await watches[-1].ask(f"{CONFIG_MAPS}?watch=1&resourceVersion=1") == 429:
                await asyncio.sleep(0.01)


async def test_too_many_streams_are_refused_in_kubernetes_words() -> None:
    async with house(Bounds(2, 1)) as served:
        await (await served.wire()).ask(f"{CONFIG_MAPS}?watch=1&resourceVersion=1")
        wire = await served.wire()
        wire.writer.write(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{TOKEN}\r\n".encode())
        refused = await wire.rest()
        assert b"retry-after: 1\r\n" in refused
        assert b'"message":"Too many requests, please try again later.","reason":"TooManyRequests"' in refused


@pytest.mark.parametrize("known", [False, True])
async def test_headers_beyond_a_mebibyte_are_too_large(known: bool) -> None:
    async with house() as served:
        wire = await served.wire()
        if known:
            assert await wire.ask() == 200
        wire.writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (HEADER_BYTES + 1))
        assert await wire.rest() == (
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
        )


async def test_all_strangers_together_may_say_little() -> None:
    async with house(Bounds(64, 16, stranger_bytes=1 << 20)) as served:
        wires = [await served.wire() for _ in range(3)]
        for each in wires:
            each.writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 500_000)
            await each.writer.drain()
        assert await wires[0].rest() == b""
        for each in wires[1:]:
            each.writer.write(f"\r\n{TOKEN}\r\n".encode())
            assert await each.answer() == 200


@pytest.mark.parametrize("path", [CONFIG_MAPS, f"{CONFIG_MAPS}?watch=1"])
async def test_a_reader_that_stops_is_cut_off(path: str) -> None:
    async with house(Bounds(64, 16, reader_seconds=0.2)) as served:
        for number in range(10):
            await served.talk.create(CONFIG_MAPS, config_map(f"c{number}", x="y" * 1_000_000))
        wire = await served.wire(4096)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n".encode())
        await until(lambda: served.inside() == 1)
        await until(lambda: served.inside() == 0)


class Talkative:
    """A kubelet with a long log."""

    async def logs(self, pod: Any, options: Any) -> AsyncIterator[bytes]:
        async def lines() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 500_000

        return lines()


async def test_who_reads_a_log_slowly_is_waited_for() -> None:
    async with house(Bounds(64, 16, reader_seconds=0.05), kubelet=Talkative()) as served:
        await served.talk.create(PODS, pod())
        await served.talk.create(f"{PODS}/p/binding", binding("p"))
        wire = await served.wire(4096)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.writer.write(f"GET {PODS}/p/log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{TOKEN}\r\n".encode())
        await asyncio.sleep(0.5)  # ten times as long as another reader would have
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await wire.rest()) > 20 * 500_000


async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.1)
    async with house() as served:
        wire = await served.wire()
        assert await wire.ask(CONFIG_MAPS, f"{TOKEN}Content-Length: 100\r\n", "POST") == 504
        assert await wire.rest() == b""


async def test_nothing_of_a_strangers_body_is_read() -> None:
    async with house() as served:
        wire = await served.wire()
        assert await wire.ask(CONFIG_MAPS, "Content-Length: 1000000000\r\n", "POST") == 401
        assert await wire.rest() == b""


async def test_a_stranger_gets_one_answer_however_much_he_sends_ahead() -> None:
    async with house() as served:
        wire = await served.wire()
        wire.writer.write(f"GET /version HTTP/1.1\r\nHost: x\r\nX-Long: {'x' * 100_000}\r\n\r\n".encode() * 50)
        assert await wire.answer() == 401
        assert await wire.rest() == b""


async def test_who_asks_whether_to_go_on_is_told_so_unless_he_is_a_stranger() -> None:
    async with house() as served:
        wire = await served.wire()
        body = msgspec.json.encode(config_map())
        asks = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"
        wire.writer.write(f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{TOKEN}{asks}\r\n".encode())
        assert await wire.answer() == 100
        wire.writer.write(body)
        assert await wire.answer() == 201
        stranger = await served.wire()
        assert await stranger.ask(CONFIG_MAPS, asks, "POST") == 401


async def test_a_body_that_is_far_too_large_is_refused_and_nothing_else_said() -> None:
    async with house() as served:
        wire = await served.wire()
        size = MOST_BYTES + 2 * HEADER_BYTES
        wire.writer.write(
            f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{TOKEN}Content-Length: {2 * size}\r\n\r\n".encode()
        )
        wire.writer.write(b" " * size)
        assert await wire.answer() == 413
        assert await wire.rest() == b""


async def test_requests_may_be_sent_ahead() -> None:
    async with house() as served:
        wire = await served.wire()
        wire.writer.write(f"GET /version HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n".encode() * 200)
        assert [await wire.answer() for _ in range(200)] == [200] * 200


CANARY = "canary-5f1e"
BAD = {
    "a method": f"{CANARY}\x00 / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a version": f"GET / {CANARY}\r\n\r\n",
    "a header without a name": f"GET / HTTP/1.1\r\nHost: x\r\n: {CANARY}\r\n\r\n",
    "a header in two lines": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n {CANARY}\r\n\r\n",
    "a header with a null": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CANARY}\x00\r\n\r\n",
    "a header that is no text": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CANARY}\xff\r\n\r\n",
    "two lengths": f"POST / HTTP/1.1\r\nHost: x\r\nX: {CANARY}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a length that is none": f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {CANARY}\r\n\r\n",
    "an address": f"GET http://[{CANARY} HTTP/1.1\r\nHost: x\r\n\r\n",
    "an upgrade": f"GET /?{CANARY} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n{CANARY}",
    "many headers": "GET / HTTP/1.1\r\nHost: x\r\n" + f"X: {CANARY}\r\n" * 1000 + "\r\n",
    "a part without a size": f"POST / HTTP/1.1\r\nHost: x\r\n{TOKEN}Transfer-Encoding: chunked\r\n\r\n{CANARY}\r\n",
    "a part that ends late": f"POST / HTTP/1.1\r\nHost: x\r\n{TOKEN}Transfer-Encoding: chunked\r\n\r\n1\r\n{CANARY}",
    "a body that is no JSON": f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{TOKEN}Content-Length: 11\r\n\r\n{CANARY}",
    "a body that is not packed": (
        f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{TOKEN}Content-Encoding: gzip\r\nContent-Length: 11\r\n\r\n{CANARY}"
    ),
    "an agent that is no text": f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\n{TOKEN}User-Agent: \xff{CANARY}\r\n\r\n",
    "a path that is no text": f"GET {CONFIG_MAPS}/\xff{CANARY} HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n",
    "a path with half a character": f"GET {CONFIG_MAPS}/%ed%a0%80%ff{CANARY} HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n",
    "a query that is no text": f"GET {CONFIG_MAPS}?labelSelector=%ff\xff{CANARY} HTTP/1.1\r\nHost: x\r\n{TOKEN}\r\n",
}


@pytest.mark.parametrize("said", BAD.values(), ids=list(BAD))
async def test_a_malformed_request_is_answered_and_leaves_no_word_in_the_log(
    said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with house() as served:
        wire = await served.wire()
        wire.writer.write(said.encode("latin-1"))
        assert await wire.answer() < 500
        assert await (await served.wire()).ask() == 200
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert CANARY not in caplog.text
    assert WHO.token not in caplog.text


async def test_a_failure_of_the_server_is_logged_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> None:
        raise KeyError(CANARY)

    async with house(guards=[broken]) as served:
        path = f"/api/v1/namespaces/default/pods?x={CANARY}"
        answer = await served.talk.send("POST", path, {"metadata": {"name": "p"}, "spec": {"containers": []}})
        assert answer.code < 500
        body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        answer = await served.talk.send("POST", "/api/v1/namespaces/default/pods", body)
    assert answer.code == 500
    assert CANARY not in caplog.text
    assert "POST /api/v1/namespaces/default/pods failed: KeyError at test_bounds.py:" in caplog.text
    assert "Traceback" not in caplog.text
