"""Requests over HTTP: what a client outside the API server's process uses."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
from yarl import URL

from tinykube.endpoint import Endpoint, Identity
from tinykube.transport import Request, Response, Unreachable

CONNECT = 10.0
TOTAL = 60.0
CONNECTIONS = 256
BUFFER = 1 << 20
"""A watch is read in large pieces: many events at once are one wake-up."""
HEADERS = (("accept-encoding", "identity"),)
"""Without compression, which costs the server more than the network gains."""


class UpgradeRefused(Exception):
    """The server does not want a WebSocket: the code and the body of its answer."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"the server answered {status} to a request for a WebSocket")
        self.status = status
        self.body = body


class HttpTransport:
    """Carries requests to an API server.  An answer that was cut off is a ConnectionError."""

    def __init__(self, endpoint: Endpoint, total: float = TOTAL, agent: str = "tinykube") -> None:
        self.endpoint = endpoint
        self._total = total
        self._agent = agent
        self._session: aiohttp.ClientSession | None = None
        self._base = URL(endpoint.server)
        self._tls: tuple[bytes, ssl.SSLContext] | None = None

    async def send(self, request: Request) -> Response:
        identity = await self.endpoint.credentials.identity()
        response = await self._send(request, identity)
        if response.status == 401:
            fresh = await self.endpoint.credentials.identity(refused=True)
            if fresh != identity:  # the server has done nothing yet: asking again is safe
                response = await self._send(request, fresh)
        return response

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def open_websocket(
        self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket.  Raises UpgradeRefused if the server does not want one."""
        identity = await self.endpoint.credentials.identity()
        body = b""

        async def keep(session: aiohttp.ClientSession, _: Any, asked: aiohttp.TraceRequestEndParams) -> None:
            nonlocal body
            if asked.response.status >= 400:  # aiohttp would drop what the server says
                body = await asked.response.read()

        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(keep)
        try:
            with _as_os_errors():
                async with aiohttp.ClientSession(
                    connector=self._open().connector, connector_owner=False, trace_configs=[trace]
                ) as session:
                    return await session.ws_connect(
                        self._url(path).with_query(query),
                        protocols=protocols,
                        headers=[*identity.headers.items(), *self.endpoint.impersonate],
                        ssl=self._context(identity),
                        server_hostname=self.endpoint.server_name or None,
                        max_msg_size=0,
                    )
        except aiohttp.WSServerHandshakeError as error:
            raise UpgradeRefused(error.status, body) from None

    async def _send(self, request: Request, identity: Identity) -> Response:
        endless = request.query.get("watch") in ("true", "1") or request.path.endswith("/log")
        timeout = aiohttp.ClientTimeout(total=None if endless else self._total, sock_connect=CONNECT)
        headers = [*HEADERS, ("user-agent", self._agent), *request.headers.items()]
        with self._trusting(), _as_os_errors():
            response = await self._open().request(
                request.method,
                self._url(request.path).with_query(request.query),
                headers=[*headers, *identity.headers.items(), *self.endpoint.impersonate],
                data=request.body or None,
                ssl=self._context(identity),
                server_hostname=self.endpoint.server_name or None,
                timeout=timeout,
                allow_redirects=False,
            )
            names = {name.lower(): value for name, value in response.headers.items()}
            if endless and response.status < 300:
                return Response(response.status, names, stream=_Stream(response))
            async with response:
                return Response(response.status, names, await response.read())

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60)
            self._session = aiohttp.ClientSession(
                connector=connector, read_bufsize=BUFFER, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _url(self, path: str) -> URL:
        return self._base.with_path(self._base.path.rstrip("/") + path)

    @contextmanager
    def _trusting(self) -> Iterator[None]:
        """A server that is not trusted may have a new authority: look at it before the next try."""
        try:
            yield
        except Unreachable as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
                self._tls = None
            raise

    def _context(self, identity: Identity) -> ssl.SSLContext | bool:
        if self.endpoint.server.startswith("http://"):
            return True
        if self._tls is None or self._tls[0] != identity.certificate:
            self._tls = identity.certificate, self.endpoint.tls(identity)
        return self._tls[1]


class _Stream:
    """The body of an answer without an end, as a watch is."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        with _as_os_errors():
            chunk = await self._response.content.readany()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Stop reading; the connection is of no more use."""
        self._response.close()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """What went wrong on the way, in the words of `Transport`."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Unreachable(_reason(error)) from error
    except aiohttp.WSServerHandshakeError:
        raise
    except TimeoutError as error:
        raise TimeoutError("the API server gave no answer in time") from error
    except aiohttp.ClientError as error:
        raise ConnectionError(f"the connection to the API server broke: {error}") from error


def _reason(error: aiohttp.ClientError) -> str:
    """Who could not be reached, and why; aiohttp's own text shows Python objects."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        problem = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        return f"{error.host}:{error.port}: its certificate is not trusted: {problem}"
    if not isinstance(error, aiohttp.ClientConnectorError):
        return "no connection could be made in time"
    cause = error.os_error
    known = cause.errno in errno.errorcode and not isinstance(cause, ssl.SSLError)
    return f"{error.host}:{error.port}: {os.strerror(cause.errno or 0) if known else cause.strerror or cause}"
