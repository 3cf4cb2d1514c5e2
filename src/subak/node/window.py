"""What a running agent shows of itself over HTTP, to probes, to Prometheus, to `subak top` and to `subak doctor`.

    /healthz   200 while it works: its event loop answers, and no watch is stuck
    /readyz    200 once the node says what its cards are and containers can be given them; else 503 and what is missing
    /metrics   docs/reference/agent.md lists them
    /use       what each container uses of its cards

Nothing can be changed here, and nothing is secret: it names pods, containers and cards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from tinykube import window
from tinykube.reflector import Reflector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Shown(Protocol):
    """What is shown."""

    registry: CollectorRegistry

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All watches."""

    def readiness(self) -> Mapping[str, Any]:
        """Whether it is `ready`, and why not."""

    def use(self) -> Any:
        """What containers use of their cards."""


class Window(window.Window):
    """Serves it at an address; port 0 takes any that is free, and `port` tells which."""

    def __init__(self, shown: Shown, host: str, port: int) -> None:
        self._shown = shown
        paths = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            "/use": self._use,
        }
        super().__init__(host, port, paths)

    async def _healthz(self, request: web.Request) -> web.Response:
        return window.health(self._shown.reflectors)

    async def _readyz(self, request: web.Request) -> web.Response:
        content = self._shown.readiness()
        return web.json_response(content, status=200 if content["ready"] else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._shown.registry), headers={"content-type": CONTENT_TYPE})

    async def _use(self, request: web.Request) -> web.Response:
        return web.json_response(self._shown.use())
