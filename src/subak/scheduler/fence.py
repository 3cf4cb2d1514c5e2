"""Writes only while we lead.

A Lease elects, it does not fence.  So each write ends before the Lease does, and none is begun afterwards, be it the
first attempt or a repetition.  What was sent and still arrives late is left to the one who leads then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tinykube.transport import Request, Response, Transport


class NotLeading(ConnectionError):
    """We do not lead, so nothing was sent."""


class Fenced:
    """A transport that carries all reads, and writes only while `left` seconds of leading are left."""

    def __init__(self, transport: Transport, left: Callable[[], float]) -> None:
        self._transport = transport
        self._left = left

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            return await self._transport.send(request)
        left = self._left()
        if left <= 0.0:
            raise NotLeading("another replica leads, or may do so: nothing was sent")
        async with asyncio.timeout(left):
            return await self._transport.send(request)

    async def close(self) -> None:
        await self._transport.close()
