"""A small HTTP server by which a program of a cluster shows itself: to probes, to Prometheus, to people.

It only answers questions.  What it answers is the program's own matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from tinykube.house import House
from tinykube.reflector import Reflector

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def health(reflectors: Iterable[Reflector[Any]]) -> web.Response:
    """What a probe is told of a program that lives by these watches: a restart helps only if one of them is stuck."""
    stuck = [str(each) for each in reflectors if each.stuck]
    if stuck:
        return web.Response(status=500, text=f"no word from these watches, nor any new try: {', '.join(stuck)}\n")
    return web.Response(text="ok\n")


class CannotListen(Exception):
    """The address cannot be used; the message says why."""


class Window:
    """Answers GET at these paths; port 0 takes any that is free, and `port` tells which.  No host means all."""

    def __init__(self, host: str, port: int, paths: Mapping[str, Handler]) -> None:
        self._host, self.port = host, port
        app = web.Application()
        for path, handler in paths.items():
            app.router.add_get(path, handler)
        self._house = House(app)

    async def start(self) -> None:
        """Listen.  Raises CannotListen."""
        try:
            await self._house.open(self._host, self.port)
        except OSError as error:
            raise CannotListen(error.strerror) from None
        self.port = self._house.port

    async def stop(self) -> None:
        """Listen no more."""
        await self._house.close()
