"""What a probe learns of a page, whatever its server answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from subak.local.kubelet import page
from subak.local.kubelet.page import BadAnswer, status
from tinykube.server.tls import identity

PATIENCE = 20.0
OK = b"HTTP/1.1 200 OK\r\n\r\n"
ENDLESS = 100_000
"""An answer of so many bytes is given again and again."""


@asynccontextmanager
async def serving(*answers: bytes, secure: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives these answers, one to a connection, and then the last one; the list has the questions."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = answers[min(len(asked), len(answers) - 1)]
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        with suppress(ConnectionError):
            while len(answer) >= ENDLESS and not writer.is_closing():
                writer.write(answer)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
    async with server, asyncio.timeout(PATIENCE):
        scheme = "http" if secure is None else "https"
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("answer", [OK, b"HTTP/1.0 200\n\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 5 + OK])
async def test_the_status_is_enough(answer: bytes) -> None:
    async with serving(answer) as (url, asked):
        assert await status(f"{url}/a b?c=d#e", {"X-Name": "value"}) == 200
    first, *lines = asked[0].decode().split("\r\n")
    assert first == "GET /a%20b?c=d HTTP/1.1"
    assert lines == [f"Host: {url.removeprefix('http://')}", "X-Name: value", "Connection: close", "", ""]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\n", "too many answers that only announce another one"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n", "more than 128 lines"),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * ENDLESS, "longer ones than 8192 bytes"),
        (b"\x1b[2J\xff\r\n\r\n", "malformed HTTP response"),
    ],
)
async def test_an_answer_without_an_end_ends_the_question_and_says_nothing(answer: bytes, why: str) -> None:
    async with serving(answer * (ENDLESS // len(answer) + 1)) as (url, _):
        with pytest.raises(BadAnswer, match=why):
            await status(url, {})


async def test_who_ends_before_the_answer_has_given_none() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n") as (url, _):
        with pytest.raises(BadAnswer, match="the connection ended before the answer"):
            await status(url, {})


async def test_a_redirect_is_followed_on_the_same_host_only() -> None:
    there = b"HTTP/1.1 302 Found\r\nlocation: /there\r\n\r\n"
    elsewhere = b"HTTP/1.1 301 Moved\r\nLocation: http://xn--\xe4/\r\n\r\n"
    async with serving(there, b"HTTP/1.1 500 No\r\n\r\n", elsewhere) as (url, asked):
        assert await status(f"{url}/here", {}) == 500
        assert [each.split()[1] for each in asked] == [b"/here", b"/there"]
        assert await status(url, {}) == 301
    async with serving(there) as (url, asked):
        with pytest.raises(BadAnswer, match="stopped after 10 redirects"):
            await status(url, {})
        assert len(asked) == page.MOST_REDIRECTS


async def test_a_header_of_several_lines_is_not_sent() -> None:
    async with serving(OK) as (url, asked):
        with pytest.raises(ValueError, match="more than one line"):
            await status(url, {"A": "b\r\n\r\nDELETE / HTTP/1.1"})
    assert asked == []


async def test_nobody_asks_who_signed_a_certificate() -> None:
    async with serving(OK, secure=identity().context()) as (url, _):
        assert await status(url, {}) == 200
