"""Writes end with the time that we may lead, and none begins afterwards."""

from __future__ import annotations

import asyncio

import pytest

from subak.scheduler.fence import Fenced, NotLeading
from tests.support import virtual
from tinykube.transport import Request, Response

READ, WRITE = Request("GET", "/api/v1/pods"), Request("POST", "/api/v1/namespaces/a/pods/b/binding")


class Slow:
    """Answers after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.seen: list[str] = []

    async def send(self, request: Request) -> Response:
        self.seen.append(request.method)
        await asyncio.sleep(self.seconds)
        return Response(200)

    async def close(self) -> None:
        pass


def test_a_write_ends_when_the_lease_may_end() -> None:
    async def story() -> None:
        server = Slow(8.0)
        began = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await Fenced(server, lambda: 5.0).send(WRITE)
        assert asyncio.get_running_loop().time() - began < 5.1
        assert (await Fenced(server, lambda: 9.0).send(WRITE)).status == 200

    virtual.run(story())


def test_who_does_not_lead_reads_and_writes_nothing() -> None:
    async def story() -> None:
        server = Slow(8.0)
        fenced = Fenced(server, lambda: 0.0)
        with pytest.raises(NotLeading):
            await fenced.send(WRITE)
        assert (await fenced.send(READ)).status == 200
        assert server.seen == ["GET"]

    virtual.run(story())
