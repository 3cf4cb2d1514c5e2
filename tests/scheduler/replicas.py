"""Replicas of the controller on the embedded API server, each with a way to it that a test can disturb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from subak.scheduler.controller import Controller, Settings
from subak.scheduler.served import NAMES
from tests.scheduler.live import Live, Way
from tests.support import virtual
from tinykube.client import Client
from tinykube.resource import LEASES, NAMESPACES
from tinykube.status import ApiError
from tinykube.transport import Request, Response, Transport

LEASE = ("subak-controller", "subak-system")


class HeldBack(Way):
    """A way on which the news of pods can be held back."""

    def __init__(self, server: Transport) -> None:
        super().__init__(server)
        self.holds = False
        self.sent: list[str] = []
        """The paths of all writes."""
        self.listed: list[str] = []
        """The paths of all lists, and of single objects that were read."""

    async def send(self, request: Request) -> Response:
        if request.method != "GET":
            self.sent.append(request.path)
        elif not request.query.get("watch"):
            self.listed.append(request.path)
        response = await super().send(request)
        if response.stream is not None and request.path.endswith("/pods"):
            return Response(response.status, response.headers, stream=self._held(response.stream))
        return response

    async def _held(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            while self.holds:
                await asyncio.sleep(0.05)
            yield line


class Replica:
    """A controller that runs until it is killed or asked to end."""

    def __init__(self, live: Live, name: str, names: Sequence[str] = NAMES) -> None:
        self.name = name
        self.way = HeldBack(live.server)
        settings = Settings(names=tuple(names), identity=name, host="127.0.0.1", port=0)
        self.controller = Controller(self.way, settings)
        self.stopped = asyncio.Event()
        self.task = asyncio.create_task(self.controller.run(self.stopped))

    @property
    def leads(self) -> bool:
        service = self.controller.service
        return service is not None and service.leading and not self.task.done()

    @property
    def knows_all(self) -> bool:
        """Whether it has seen all objects, so that it could lead."""
        return self.controller.service is not None and self.controller.service.ready.is_set()

    async def kill(self) -> None:
        """End it in the middle of whatever it does; what it sent may still arrive."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop(self) -> None:
        """Ask it to end."""
        self.stopped.set()
        await self.task


async def cluster() -> Live:
    """A server with one node and our namespace, and no scheduler."""
    live = Live()
    await live.add_node("n1")
    await live.client.create(NAMESPACES, {"metadata": {"name": "subak-system"}})
    return live


async def lease(client: Client) -> dict[str, Any]:
    return dict((await client.get(LEASES, *LEASE))["spec"])


async def renew(client: Client, name: str, holder: str, count: int) -> None:
    """Another scheduler holds a Lease: write that so many seconds have passed."""
    stamp = f"2026-01-01T00:{count // 60 % 60:02}:{count % 60:02}.000000Z"
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": stamp}
    try:
        await client.patch(LEASES, name, "kube-system", {"spec": spec})
    except ApiError:
        await client.create(LEASES, {"metadata": {"name": name}, "spec": spec}, "kube-system")


async def until_one_leads(replicas: Sequence[Replica], seconds: float = 60.0) -> Replica:
    await virtual.until(lambda: any(each.leads for each in replicas), seconds)
    (leader,) = (each for each in replicas if each.leads)
    return leader
