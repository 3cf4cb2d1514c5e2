"""Objects of groups and queues on the embedded API server, and what the scheduler's writers do to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from subak.model.group import QUEUES, VOLCANO_GROUPS
from subak.scheduler.feed import Feed
from subak.scheduler.groups import Groups
from subak.scheduler.messages import Event, Note, ShowGroup, ShowQueue
from subak.scheduler.queues import Queues
from tests.scheduler.live import Json, Way
from tests.support import virtual
from tests.support.custom import CUSTOM, POD_GROUP, QUEUE
from tinykube.client import Client
from tinykube.events import Recorder
from tinykube.resource import EVENTS, Resource
from tinykube.server import bootstrap
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.transport import Request, Response

READY = Note("Scheduled", "True", "tasks in gang are ready to be scheduled", "")
SHORT = Note("Unschedulable", "True", "NotEnoughResources", "3/8 tasks in gang unschedulable")


def object_of(resource: Resource, name: str, spec: Json) -> Json:
    """A custom object, whose kind a server wants to be told."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


class Counting(Way):
    """A way that counts writes, by method and path."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.writes: list[str] = []

    async def send(self, request: Request) -> Response:
        if request.method != "GET" and "/events" not in request.path:
            self.writes.append(f"{request.method} {request.path}")
        return await super().send(request)


class Stage:
    """A server, a feed, and those who write about groups and queues, on a way that a test can disturb."""

    def __init__(self) -> None:
        self.store = Store(custom=CUSTOM)
        self.server = Server(self.store)
        bootstrap.fill(self.server.registry)
        self.client = Client(self.server, "tester")
        self.way = Counting(self.server)
        client = Client(self.way)
        self.events: list[Event] = []
        self.feed = Feed(client, self.events.append)
        self.recorder = Recorder(client, "subak")
        self.groups = Groups(client, self.feed.groups, self.recorder)
        self.queues = Queues(client, self.feed.queues)
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        return task

    async def add_group(self, name: str, **spec: Any) -> str:
        """A PodGroup, seen by the feed; gives its UID."""
        made = await self.client.create(VOLCANO_GROUPS, object_of(VOLCANO_GROUPS, name, spec), "default")
        await virtual.until(lambda: f"default/{name}" in self.feed.groups[VOLCANO_GROUPS].objects)
        return str(made["metadata"]["uid"])

    async def add_queue(self, name: str, **spec: Any) -> None:
        await self.client.create(QUEUES, object_of(QUEUES, name, spec))
        await virtual.until(lambda: name in self.feed.queues.objects)

    def group(self, name: str) -> Json:
        found = self.store.get(POD_GROUP, "default", name)
        assert found is not None, f"PodGroup {name} is gone"
        return found

    def queue(self, name: str) -> Json:
        found = self.store.get(QUEUE, "", name)
        assert found is not None, f"Queue {name} is gone"
        return found

    async def told(self, name: str) -> list[tuple[str, str, str]]:
        """The events about an object."""
        await self.recorder.flush(30)
        listing = await self.client.list(EVENTS, "default", fields=f"involvedObject.name={name}")
        return [(each["type"], each["reason"], each["message"]) for each in listing.items]


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    stage = Stage()
    stage.begin(stage.feed.run())
    stage.begin(stage.recorder.run())
    await stage.feed.complete()
    try:
        yield stage
    finally:
        for task in stage.tasks:
            task.cancel()
        await asyncio.gather(*stage.tasks, return_exceptions=True)
        await stage.server.close()


def play(story: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """Run a story in virtual time."""

    async def main() -> None:
        async with staged() as stage:
            await story(stage)

    virtual.run(main())


def show(uid: str, phase: str = "Inqueue", condition: Note | None = SHORT, name: str = "a", **counts: int) -> ShowGroup:
    numbers = {"running": 0, "succeeded": 0, "failed": 0, **counts}
    return ShowGroup("volcano", f"default/{name}", uid, phase, condition=condition, **numbers)


def stands(name: str, phases: dict[str, int], allocated: dict[str, str] | None = None) -> ShowQueue:
    return ShowQueue(name, "", phases, allocated or {})
