"""The extender's HTTP server: one POST for each verb."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from subak.scheduler.extender import wire
from subak.scheduler.extender.extender import Extender
from tinykube.house import House

MOST_BYTES = 256 << 20
"""kube-scheduler without a node cache sends all nodes, whole, in one request."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def listening(extender: Extender, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Answer kube-scheduler while the context is open; gives the address, where port 0 has become a free one."""
    house = House(application(extender))
    try:
        await house.open(host, port)
        yield host, house.port
    finally:
        await house.close()


def application(extender: Extender) -> web.Application:
    """The verbs under their paths."""
    made = web.Application(client_max_size=MOST_BYTES)
    made.add_routes(
        [
            web.post("/filter", _verb(wire.Args, _at_once(extender.filter))),
            web.post("/prioritize", _verb(wire.Args, _at_once(extender.prioritize))),
            web.post("/bind", _verb(wire.BindingArgs, extender.bind)),
            web.post("/preempt", _verb(wire.PreemptionArgs, _at_once(extender.preempt))),
        ]
    )
    return made


def _at_once(answer: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    async def answering(args: Any) -> Any:
        return answer(args)

    return answering


def _verb(
    type: type[wire.Wire], answer: Callable[[Any], Awaitable[Any]]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Read the arguments, answer, and write the answer."""
    decoder = msgspec.json.Decoder(type)

    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            args = decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.warning("%s: a request that cannot be read: %s", request.path, error)
            return web.Response(status=400, text=f"the request cannot be read: {error}")
        return web.Response(body=msgspec.json.encode(await answer(args)), content_type="application/json")

    return handle
