"""The agent's Lease is renewed while the agent can work, and only then; it is the agent's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from subak.dialects import mark
from subak.model import manifest
from subak.node.heartbeat import Heartbeat
from tests.scheduler.live import Live, refuse
from tests.support import virtual
from tinykube.client import Client
from tinykube.resource import LEASES, NAMESPACES
from tinykube.transport import Request, Response

BEGIN = datetime(2026, 11, 16, tzinfo=UTC)


def now() -> datetime:
    return BEGIN + timedelta(seconds=asyncio.get_running_loop().time())


class Beating:
    def __init__(self) -> None:
        self.live = Live()
        self.able = True
        self.heartbeat = Heartbeat(Client(self.live.way), "n1", lambda: self.able, clock=now)
        self.task = asyncio.create_task(self.heartbeat.run())

    async def lives(self) -> bool:
        """Whether a scheduler takes the agent for alive."""
        lease = await self.live.client.get(LEASES, "n1", mark.NAMESPACE, type=manifest.Lease)
        return mark.lives_until(lease) > now().timestamp()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def beating() -> AsyncIterator[Beating]:
    made = Beating()
    await made.live.client.create(NAMESPACES, {"metadata": {"name": mark.NAMESPACE}})
    try:
        yield made
    finally:
        await made.stop()
        await made.live.server.close()


def test_the_lease_lives_as_long_as_the_agent_can_work() -> None:
    async def story() -> None:
        async with beating() as one:
            await virtual.until(lambda: one.heartbeat.beating)
            await asyncio.sleep(500)
            assert await one.lives()
            one.able = False
            await asyncio.sleep(20)
            assert await one.lives(), "a runtime that starts again does not end it"
            await asyncio.sleep(60)
            assert not await one.lives()
            one.able = True
            await asyncio.sleep(5)
            assert await one.lives()

    virtual.run(story())


def test_a_lease_that_is_removed_is_made_again() -> None:
    async def story() -> None:
        async with beating() as one:
            await virtual.until(lambda: one.heartbeat.beating)
            await one.live.client.delete(LEASES, "n1", mark.NAMESPACE)
            await asyncio.sleep(15)
            assert await one.lives()

    virtual.run(story())


def test_a_server_that_refuses_for_a_while_ends_nothing() -> None:
    async def story() -> None:
        async with beating() as one:
            await virtual.until(lambda: one.heartbeat.beating)

            async def refusing(request: Request, answer: Any) -> Response:
                return refuse(500)

            one.live.way.disturb = refusing
            await asyncio.sleep(25)
            assert "Lease subak-system/n1 cannot be renewed" in one.heartbeat.trouble[0]
            one.live.way.disturb = None
            await asyncio.sleep(5)
            assert await one.lives()
            assert one.heartbeat.trouble == []

    virtual.run(story())


def test_a_lease_of_somebody_else_is_left_alone() -> None:
    async def story() -> None:
        async with beating() as one:
            body = {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "theirs"}}
            await one.live.client.create(LEASES, body, mark.NAMESPACE)
            await virtual.until(lambda: bool(one.heartbeat.trouble))
            assert "Lease subak-system/n1 has no label subak.io/agent" in one.heartbeat.trouble[0]
            assert not one.heartbeat.beating
            await one.stop()
            await one.heartbeat.end()
            found = await one.live.client.get(LEASES, "n1", mark.NAMESPACE)
            assert found["spec"]["holderIdentity"] == "theirs"

    virtual.run(story())


def test_an_agent_that_ends_takes_its_lease_away() -> None:
    async def story() -> None:
        async with beating() as one:
            await virtual.until(lambda: one.heartbeat.beating)
            await one.stop()
            await one.heartbeat.end()
            assert not (await one.live.client.list(LEASES, mark.NAMESPACE)).items

    virtual.run(story())
