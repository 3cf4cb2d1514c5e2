"""An application behind a door: everybody who asks in time is served, and nobody stays for long.

For servers that know no users, or leave them to the application.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from tinykube.door import Bounds, Door
from tinykube.failures import Discreet

KEEP_ALIVE = 120.0
LONGEST = 60.0
"""Seconds for a request to come in and be answered."""
CONNECTIONS = 256

log = logging.getLogger(__name__)


class House:
    """Listens for an application; port 0 takes any that is free, and `port` tells which.  No host means all.

    `longest` are the seconds that a request may take, body and answer together.
    """

    def __init__(
        self,
        application: web.Application,
        tls: ssl.SSLContext | None = None,
        bounds: Bounds | None = None,
        longest: float = LONGEST,
    ) -> None:
        self.port = 0
        self._tls = tls
        self._bounds = bounds
        self._longest = longest
        self._door: Door | None = None
        application.middlewares.insert(0, self._serve)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE,
            shutdown_timeout=1.0,
            auto_decompress=False,  # a few bytes could stand for gigabytes
            logger=Discreet(log),
        )

    async def open(self, host: str | None, port: int = 0) -> None:
        """Listen.  Raises OSError if that cannot be."""
        await self._runner.setup()
        assert self._runner.server is not None
        bounds = self._bounds or Bounds.of_this_process(CONNECTIONS, CONNECTIONS // 2)
        self._door = Door(self._runner.server, bounds, self._tls)
        try:
            await self._door.open(host, port)
        except OSError:
            await self._runner.cleanup()
            raise
        self.port = self._door.port

    async def close(self) -> None:
        """Listen no longer; what has been asked is answered."""
        if self._door is not None:
            self._door.close()
        await self._runner.cleanup()

    @web.middleware
    async def _serve(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert self._door is not None
        visitor = self._door.visitor(request)
        with visitor.request():
            visitor.introduce()
            try:
                async with asyncio.timeout(self._longest):
                    answer = await handler(request)
            except TimeoutError:
                answer = web.Response(status=504, text="the request did not come in, or was not answered, in time\n")
            if not request.content.is_eof():
                answer.force_close()
                visitor.end()
            await answer.prepare(request)
            await answer.write_eof()
            return answer
