"""What the agent says to users and does to their pods, when the API server lets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from subak.model import manifest
from subak.node.counters import Counters
from subak.node.outbox import Outbox
from subak.node.reports import Reports
from tests.scheduler.live import Answering, Live, refuse
from tests.support import virtual
from tests.support.machines import INTERPRETER
from tinykube.client import Client
from tinykube.events import Recorder
from tinykube.resource import EVENTS, PODS
from tinykube.transport import Request, Response


class Post:
    def __init__(self) -> None:
        self.live = Live()
        self.counters = Counters()
        client = Client(self.live.way)
        self.recorder = Recorder(client, "subak-agent")
        self.outbox = Outbox(client, self.recorder, Reports(client), INTERPRETER.speaking, self.counters)
        self.writing = asyncio.create_task(self.recorder.run())

    async def pod(self) -> manifest.Pod:
        await self.live.create("a", {"nvidia.com/gpu": "1"})
        return await self.live.client.get(PODS, "a", "default", type=manifest.Pod)

    async def events(self) -> list[tuple[str, str, int]]:
        await self.recorder.flush(30)
        found = (await self.live.client.list(EVENTS, "default")).items
        return [(each["reason"], each["message"], each["count"]) for each in found]


@asynccontextmanager
async def post() -> AsyncIterator[Post]:
    made = Post()
    await made.live.add_node("n1")
    try:
        yield made
    finally:
        await made.outbox.stop()
        made.writing.cancel()
        await asyncio.wait({made.writing})
        await made.live.server.close()


def test_a_refusal_is_an_event_however_often_kubelet_tries_again() -> None:
    async def story() -> None:
        async with post() as made:
            pod = await made.pod()
            for _ in range(3):
                made.outbox.refused(pod, "c", "card GPU-1 has 5 MiB left", "Overcommitted")
                await made.recorder.flush(30)
            ((reason, message, count),) = await made.events()
            assert (reason, message, count) == ("CardsRefused", "container c: card GPU-1 has 5 MiB left", 3)
            assert made.live.pod("a")["metadata"]["annotations"]["hami.io/bind-phase"] == "failed"
            assert made.counters.refusals == {"Overcommitted": 3}
            made.outbox.served(pod)
            await virtual.until(
                lambda: made.live.pod("a")["metadata"]["annotations"]["hami.io/bind-phase"] == "success"
            )

    virtual.run(story())


def test_a_pod_that_runs_without_its_limits_is_deleted_with_a_reason() -> None:
    async def story() -> None:
        async with post() as made:
            pod = await made.pod()
            left = 2

            async def trouble(request: Request, answer: Answering) -> Response:
                nonlocal left
                if request.method == "DELETE" and left:
                    left -= 1
                    return refuse(500)
                return await answer()

            made.live.way.disturb = trouble
            made.outbox.evict(pod, "container c has no limits file")
            await virtual.until(lambda: "a" not in made.live.pods())
            ((reason, message, _),) = await made.events()
            assert reason == "CardsNotLimited"
            assert message == "container c has no limits file; the pod is deleted, because no limit holds"

    virtual.run(story())


def test_another_pod_of_the_same_name_is_not_deleted() -> None:
    async def story() -> None:
        async with post() as made:
            old = await made.pod()
            await made.live.delete("a")
            new = await made.pod()
            made.outbox.evict(old, "container c has no limits file")
            await asyncio.sleep(60)
            assert made.live.pod("a")["metadata"]["uid"] == new.metadata.uid

    virtual.run(story())
