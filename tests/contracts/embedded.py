"""The embedded API server at a real address: it runs in a thread, as another process would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from tests.support.custom import CUSTOM
from tinykube.server.http import Listener
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.tls import identity

HISTORY = 500
"""How many changes of a kind it remembers: few, so that a test can outlive them."""


class Embedded:
    """A server with nothing in it but what every cluster has; with `workloads`, somebody runs Deployments and such."""

    def __init__(self, workloads: bool = False) -> None:
        self._workloads = workloads
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._identity = identity()
        self.authority = self._identity.authority
        self.token = self._identity.token
        self._endpoint: Listener = self._run(self._start())
        self.address = self._endpoint.address

    async def _start(self) -> Listener:
        endpoint = Listener(Server(Store(history=HISTORY, custom=CUSTOM), workloads=self._workloads), self._identity)
        await endpoint.start()
        return endpoint

    def _run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=60)

    def stop(self) -> None:
        self._run(self._endpoint.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
