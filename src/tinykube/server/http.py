"""The API server on HTTPS, on this machine only, for requests with the token.

A watch is written as fast as its reader reads.  A reader that stops holds up nothing else, and is cut off in the end.
Who has not shown the token gets little room and little time (`tinykube.door`), and one answer: nothing that he sends
with his first request or after it is read.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import textwrap
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from aiohttp import web
from multidict import CIMultiDict

from tinykube import failures
from tinykube.door import HEADER_BYTES, Bounds, Door, Visitor
from tinykube.server import errors, routes
from tinykube.server.answers import refusal
from tinykube.server.channels import PROTOCOLS, converse
from tinykube.server.server import MOST_BYTES, Server
from tinykube.server.tls import ServerIdentity
from tinykube.status import ApiError
from tinykube.transport import Request, Response

HOST = "127.0.0.1"
KEEP_ALIVE = 120.0
"""Seconds without a request; Go's clients use no connection that has rested for 90."""
BODY_SECONDS = 60.0
PIECE = 1 << 18
"""Of a large answer: the next one is written when the reader has taken most of those before."""

_PASSED_ON = ("accept", "content-type", "if-none-match", "upgrade", "user-agent")
_WARNING = re.compile(r'299 - "(?:[^"\\]|\\.)*"')

log = logging.getLogger(__name__)


class Listener:
    """An address at which a server can be reached."""

    def __init__(self, server: Server, identity: ServerIdentity, bounds: Bounds | None = None) -> None:
        """The bounds are those of this process if none are given."""
        self._server = server
        self._identity = identity
        self._context = identity.context()
        self._bounds = bounds
        self._expected = f"Bearer {identity.token}".encode()
        self._runner: web.ServerRunner | None = None
        self._door: Door | None = None
        self._streams = 0
        self.port = 0

    @property
    def address(self) -> str:
        """As a URL."""
        return f"https://{HOST}:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen; on any free port if none is given."""
        protocol = web.Server(
            self._handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            auto_decompress=False,
            logger=failures.Discreet(log),
            max_line_size=HEADER_BYTES,  # the door counts all of them together
            max_field_size=HEADER_BYTES,
        )
        self._runner = web.ServerRunner(protocol, shutdown_timeout=1.0)
        await self._runner.setup()
        self._door = Door(protocol, self._bounds or Bounds.of_this_process(), self._context)
        await self._door.open(HOST, port)
        self.port = self._door.port

    def show(self, identity: ServerIdentity) -> None:
        """Show another certificate to all who connect from now on; the token stays."""
        identity.load_into(self._context)
        self._identity = identity

    async def stop(self) -> None:
        """Listen no longer; the watches end."""
        await self._server.close()
        if self._door is not None:
            self._door.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self) -> str:
        """What kubectl needs to find its way here; cluster, user and context have the server's name."""
        name = self._server.name
        authority = b64encode(self._identity.authority.encode()).decode()
        return textwrap.dedent(f"""\
            apiVersion: v1
            kind: Config
            clusters:
            - name: {name}
              cluster:
                server: {self.address}
                certificate-authority-data: {authority}
            users:
            - name: {name}
              user:
                token: {self._identity.token}
            contexts:
            - name: {name}
              context:
                cluster: {name}
                user: {name}
            current-context: {name}
            """)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self._door is not None
        visitor = self._door.visitor(request)
        with visitor.request():
            try:
                answer = await self._answer(request, visitor)
            except ApiError as error:
                answer = _whole(refusal(error))
            if not visitor.known or not request.content.is_eof():  # nobody will read the rest
                answer.force_close()
                visitor.end()
            await answer.prepare(request)  # aiohttp would do it after us: a visitor who reads is not at rest
            await answer.write_eof()
            return answer

    async def _answer(self, request: web.BaseRequest, visitor: Visitor) -> web.StreamResponse:
        headers = request.headers
        if not hmac.compare_digest(_bytes(headers.get("Authorization", "")), self._expected):
            raise ApiError(401, "Unauthorized", "Unauthorized")
        visitor.introduce()
        if headers.get("Upgrade", "").lower() == "websocket":
            with self._stream(), visitor.long():
                return await self._upgrade(request)
        passed_on = {name: _text(headers[name]) for name in _PASSED_ON if name in headers}
        query: dict[str, str] = {}
        for name, value in request.query.items() if request.query_string else ():
            query.setdefault(name, value)  # the first of several values counts
        asked = Request(request.method, _text(request.path), query, passed_on, await _body(request))
        response = await self._server.send(asked)
        if response.stream is None:
            if len(response.body) > PIECE:
                return await _streamed(request, _in_pieces(response))
            return _whole(response, request.method == "HEAD")
        try:
            with self._stream(), visitor.long() if asked.path.endswith("/log") else nullcontext():
                return await _streamed(request, response)
        finally:
            close = getattr(response.stream, "aclose", None)
            if close is not None:
                await close()

    @contextmanager
    def _stream(self) -> Iterator[None]:
        """While an answer goes on.  All of them together leave half of the connections to shorter ones."""
        assert self._door is not None
        if self._streams >= self._door.bounds.connections // 2:
            message = "Too many requests, please try again later."
            raise ApiError(429, "TooManyRequests", message, {"retryAfterSeconds": 1})
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _upgrade(self, request: web.BaseRequest) -> web.StreamResponse:
        """Only `exec` speaks over WebSockets."""
        found = self._server.routes.resolve(request.method, _text(request.path).strip("/").split("/"))
        if found is None or found[0] != "exec":
            raise routes.not_found()
        offered = [each.strip() for each in _text(request.headers.get("Sec-WebSocket-Protocol", "")).split(",")]
        if not any(each in PROTOCOLS for each in offered):
            message = f"client supports {offered}, server accepts {list(PROTOCOLS)}"
            raise errors.bad_request(f"unable to upgrade: unable to negotiate protocol: {message}")
        target, query = found[1], request.query
        first = {name: query.getone(name) for name in query}
        session = await self._server.execute(target.namespace, target.name, first, query.getall("command", []))
        return await converse(request, session)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, protocol._loop, client_max_size=MOST_BYTES)


async def _body(request: web.BaseRequest) -> bytes:
    """What was sent with a request, if it comes in time.  Raises ApiError."""
    if not request.body_exists:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            if request.headers.get("Expect", "").lower() == "100-continue":  # curl waits for that
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return bytes(MOST_BYTES + 1)  # the server knows what to say about that
    except TimeoutError:
        message = "Timeout: request did not complete within the allotted timeout"
        raise ApiError(504, "Timeout", message) from None
    except (web.RequestPayloadError, web.PayloadAccessError):
        raise errors.bad_request(
            "the body cannot be read: its parts or its length are not what the headers say"
        ) from None


def _bytes(value: str) -> bytes:
    """A header as it was sent; aiohttp keeps bytes that are no UTF-8 as halves of characters."""
    return value.encode("utf-8", "surrogateescape")


def _text(value: str) -> str:
    """The same as a text, as Go shows it."""
    return value if value.isascii() else _bytes(value).decode("utf-8", "replace")


def _headers(response: Response) -> list[tuple[str, str]]:
    """One header for each warning."""
    found = []
    for name, value in response.headers.items():
        if name == "warning":
            found += [(name, each) for each in _WARNING.findall(value)]
        else:
            found.append((name, value))
    return found


def _whole(response: Response, bare: bool = False) -> web.Response:
    return web.Response(
        status=response.status, headers=CIMultiDict(_headers(response)), body=b"" if bare else response.body
    )


def _in_pieces(response: Response) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(response.body), PIECE):
            yield response.body[start : start + PIECE]

    return replace(response, headers={**response.headers, "content-length": str(len(response.body))}, stream=pieces())


async def _streamed(request: web.BaseRequest, response: Response) -> web.StreamResponse:
    """Write an answer as it comes, until its reader goes."""
    assert response.stream is not None
    answer = web.StreamResponse(status=response.status, headers=CIMultiDict(_headers(response)))
    try:
        await answer.prepare(request)
        async for chunk in response.stream:
            await answer.write(chunk)
        await answer.write_eof()
    except ConnectionError:
        pass
    return answer
