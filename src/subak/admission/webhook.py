"""The webhook: an HTTPS server that puts the API server's questions to `Answers`.

Its certificate can be replaced while it runs: `present` changes what new connections see, old ones go on.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from subak.admission.answers import Answers
from subak.admission.objects import MUTATE, VALIDATE
from tinykube.door import Bounds
from tinykube.house import House

MOST_BYTES = 8 << 20
"""An API server takes objects of at most 3 MiB, and sends little more than the object."""
PATIENCE = 10.0
"""Seconds for a question to come in: as long as an API server waits for the answer."""


class Webhook:
    """Listens, once it has a certificate to present."""

    def __init__(self, answers: Answers, host: str | None = None, port: int = 0) -> None:
        self.port = port
        self._host = host
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        application = web.Application(client_max_size=MOST_BYTES)
        application.router.add_post(MUTATE, _handler(answers.mutate))
        application.router.add_post(VALIDATE, _handler(answers.validate))
        self._house = House(application, self._context, Bounds.of_this_process())

    def present(self, certificate: str, key: str) -> None:
        """Show this certificate to whoever connects from now on; PEM texts."""
        # The ssl module reads keys from files only: this one is in memory.
        with os.fdopen(os.memfd_create("subak-webhook"), "w") as chain:
            chain.write(key + certificate)
            chain.flush()
            self._context.load_cert_chain(f"/proc/self/fd/{chain.fileno()}")

    async def start(self) -> None:
        """Listen; on any free port if none was given.  Raises OSError if that cannot be."""
        await self._house.open(self._host, self.port)
        self.port = self._house.port

    async def stop(self) -> None:
        """Listen no longer; questions that have come in are answered."""
        await self._house.close()


def _handler(answer: Callable[[bytes], bytes]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(PATIENCE):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408, text="the question did not come in within time")
        return web.Response(body=answer(body), content_type="application/json")

    return handle
