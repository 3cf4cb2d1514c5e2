"""A way to the API server that a test can disturb: a reverse proxy between a scheduler and the real server.

    scheduler ── HTTP ──> Proxy ── HTTPS ──> kube-apiserver
                            │
                            └── fault: wait, refuse, or carry out and give no answer

Without a fault everything passes as it is, watches line by line.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web

from tests.e2e.cluster import ADDRESS, Cluster

LARGEST = 64 << 20
_OF_THE_CONNECTION = ("host", "connection", "content-length", "transfer-encoding")


@dataclass(frozen=True)
class Fault:
    """What happens to a request: it waits for `delay` seconds; then it is answered with `status`, if there is one.

    If not, it is carried out, and with `lost` its answer never arrives.
    """

    delay: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "true"


class Proxy:
    """`fault` decides what happens to a request, None for nothing; `hold` holds lines of watches back until released.

    `disturbed` counts the requests that met a fault.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._connections: set[asyncio.Transport] = set()
        self._watches: dict[asyncio.Transport, str] = {}
        self._released = asyncio.Event()
        self.fault: Callable[[web.Request], Fault | None] = lambda request: None
        self.hold: Callable[[bytes], bool] = lambda line: False
        self.disturbed = 0
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cafile=self._cluster.certificate)
        self._session = aiohttp.ClientSession(
            ADDRESS, connector=aiohttp.TCPConnector(ssl=trust, limit=0), auto_decompress=False
        )
        application = web.Application(client_max_size=LARGEST)
        application.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await self.open()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()
        await self._runner.cleanup()
        await self._session.close()

    async def open(self) -> None:
        """Accept connections, always at the same port."""
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = self.port or self._runner.addresses[0][1]

    async def close(self) -> None:
        """Refuse connections, and break those that there are."""
        await self._site.stop()
        for each in list(self._connections):
            each.abort()

    @property
    def watched(self) -> set[str]:
        """The paths that are being watched."""
        return set(self._watches.values())

    def cut(self) -> int:
        """Break all watches; gives how many there were."""
        watches = list(self._watches)
        for each in watches:
            each.abort()
        return len(watches)

    def release(self) -> None:
        """Let go of what was held back, and hold nothing more."""
        self.hold = lambda line: False
        self._released.set()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        fault = self.fault(request)
        if fault is not None:
            self.disturbed += 1
            await asyncio.sleep(fault.delay)
            if fault.status:
                body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status}
                return web.json_response(body, status=fault.status, headers=fault.headers)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_CONNECTION}
        try:
            async with self._session.request(
                request.method,
                request.rel_url,
                headers=headers,
                data=await request.read(),
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                if is_watch(request) and answer.status == 200:
                    return await self._follow(request, answer, transport)
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_THE_CONNECTION}
                response = web.Response(status=answer.status, headers=kept, body=await answer.read())
        except aiohttp.ClientError:
            transport.abort()  # the server is away: so are we
            return web.Response()
        if fault is not None and fault.lost:
            transport.abort()
        return response

    async def _follow(
        self, request: web.Request, answer: aiohttp.ClientResponse, transport: asyncio.Transport
    ) -> web.StreamResponse:
        """Pass a watch on, line by line."""
        response = web.StreamResponse(headers={"content-type": answer.headers["content-type"]})
        await response.prepare(request)
        self._watches[transport] = request.path
        held: list[bytes] = []

        async def let_go() -> None:
            await self._released.wait()
            await response.write(b"".join(held))

        later = asyncio.create_task(let_go())
        try:
            async for line in _lines(answer):
                if self.hold(line):
                    held.append(line)
                else:
                    await response.write(line)
        finally:
            self._watches.pop(transport, None)
            later.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await later
        return response


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"


@asynccontextmanager
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    """A proxy that disturbs nothing yet."""
    async with Proxy(cluster) as running:
        yield running
