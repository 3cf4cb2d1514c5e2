"""The scheduler on the embedded API server, with a way between them that a test can disturb."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from subak.model import manifest
from subak.scheduler.core import everything
from subak.scheduler.service import Service
from tests.support import virtual
from tests.support.custom import CUSTOM
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import EVENTS, NODES, PODS
from tinykube.server import bootstrap
from tinykube.server.answers import refusal
from tinykube.server.kinds import NODE, POD
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError
from tinykube.transport import Request, Response, Transport

Json = dict[str, Any]
Answering = Callable[[], Coroutine[Any, Any, Response]]
Disturbance = Callable[[Request, Answering], Coroutine[Any, Any, Response]]
"""Gets a request and a way to carry it out, and answers."""

MEMORY = "volcano.sh/gpu-memory"
LOCK = "hami.io/mutex.lock"
SGPU = {"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "10", "metax-tech.com/vmemory": "4"}
SGPU_PODS = 10
"""As many of these fit on the card of a node of `add_metax_node`."""


class Way:
    """Between scheduler and server.  `disturb` sees every request but watches."""

    def __init__(self, server: Transport) -> None:
        self._server = server
        self.disturb: Disturbance | None = None
        self.watches: set[Watch] = set()
        self.bindings: Counter[str] = Counter()
        """How many bindings were sent, by pod."""

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/binding"):
            self.bindings[request.path.split("/")[-2]] += 1
        if request.query.get("watch"):
            response = await self._server.send(request)
            if response.stream is None:
                return response
            watch = Watch(self, response.stream)
            return Response(response.status, response.headers, stream=watch.stream())
        if self.disturb is None:
            return await self._server.send(request)
        return await self.disturb(request, lambda: self._server.send(request))

    async def close(self) -> None:
        pass

    def cut(self) -> None:
        """Break all watches."""
        for watch in list(self.watches):
            watch.broken.set()


class Watch:
    """A watch that can be broken, and whose news can be held back."""

    def __init__(self, way: Way, lines: AsyncIterator[bytes]) -> None:
        self._way = way
        self._lines = lines
        self.broken = asyncio.Event()

    async def stream(self) -> AsyncIterator[bytes]:
        self._way.watches.add(self)
        broken = asyncio.create_task(self.broken.wait())
        line: asyncio.Task[bytes] | None = None
        try:
            while True:
                line = asyncio.ensure_future(anext(self._lines))
                await asyncio.wait({line, broken}, return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    raise ConnectionError("the watch broke")
                yield line.result()
        except StopAsyncIteration:
            return
        finally:
            self._way.watches.discard(self)
            broken.cancel()
            if line is not None:
                line.cancel()
                await asyncio.wait({line})


def volcano_capacity(cards: int, mib: int) -> Json:
    return {
        "cpu": "64",
        "memory": "256Gi",
        "pods": "250",
        "volcano.sh/gpu-number": str(cards),
        MEMORY: str(cards * mib),
    }


class Live:
    """A server, the way to it, and a scheduler that runs on it."""

    def __init__(self, serves: Callable[[manifest.Pod], bool] = everything) -> None:
        self.store = Store(custom=CUSTOM)
        self.server = Server(self.store)
        bootstrap.fill(self.server.registry)
        self.client = Client(self.server, "tester")
        self.way = Way(self.server)
        self.serves = serves
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run a new scheduler, which knows nothing."""
        self.service = Service(Client(self.way), serves=self.serves)
        self.task = asyncio.create_task(self.service.run())

    async def kill(self) -> None:
        """End the scheduler in the middle of whatever it does."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})
            if not self.task.cancelled() and (error := self.task.exception()):
                raise error

    async def add_node(self, name: str, capacity: Json | None = None, annotations: Json | None = None) -> None:
        status = {
            "capacity": capacity or volcano_capacity(1, 1000),
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self.client.create(NODES, {"metadata": {"name": name, "annotations": annotations or {}}})
        await self.client.patch_status(NODES, name, "", {**status, "allocatable": status["capacity"]})
        await self.client.patch(NODES, name, "", {"spec": {"taints": None}})

    async def create(self, name: str, limits: Json, annotations: Json | None = None, **spec: Any) -> Json:
        container = {"name": "c", "image": "x", "resources": {"limits": limits}}
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"containers": [container], **spec},
        }
        return await self.client.create(PODS, body, "default")

    async def delete(self, name: str) -> None:
        await self.client.delete(PODS, name, "default", grace=0)

    async def finish(self, name: str) -> None:
        await self.client.patch_status(PODS, name, "default", {"phase": "Succeeded"}, kind=MERGE_PATCH)

    def pod(self, name: str) -> Json:
        found = self.store.get(POD, "default", name)
        assert found is not None, f"pod {name} is gone"
        return found

    def node(self, name: str) -> Json:
        found = self.store.get(NODE, "", name)
        assert found is not None, f"node {name} is gone"
        return found

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.store.list(POD)}

    def placed(self) -> dict[str, str]:
        """The node of each bound pod."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.pods().items() if pod["spec"].get("nodeName")}

    def condition(self, name: str) -> Json:
        """The pod's condition PodScheduled."""
        conditions = self.pod(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reasons and messages of the events about a pod."""
        await self.service.recorder.flush(30)
        listing = await self.client.list(EVENTS, "default", fields=f"involvedObject.name={name}")
        return [(event["reason"], event["message"]) for event in listing.items]

    async def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait until something is true, or the scheduler fails."""

        def true() -> bool:
            if self.task is not None and self.task.done():
                self.task.result()
            return condition()

        await virtual.until(true, seconds)


@asynccontextmanager
async def living(serves: Callable[[manifest.Pod], bool] = everything) -> AsyncIterator[Live]:
    """A scheduler that runs, and one node with one card of 1,000 MiB."""
    live = Live(serves)
    await live.add_node("n1")
    await live.start()
    try:
        await live.service.ready.wait()
        yield live
    finally:
        await live.kill()
        await live.server.close()


def refuse(code: int, reason: str = "Injected") -> Response:
    """The answer of a server that refuses."""
    return refusal(ApiError(code, reason, f"refused with {code}"))


def on_bindings(*answers: Response | Exception, carry_out: bool = False) -> Disturbance:
    """What happens to the first bindings; later ones pass."""
    left = list(answers)

    async def disturb(request: Request, answer: Answering) -> Response:
        if not request.path.endswith("/binding") or not left:
            return await answer()
        if carry_out:
            await answer()
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return disturb


async def add_metax_node(live: Live, name: str) -> None:
    card = {
        "uuid": f"GPU-{name}",
        "model": "sgpu",
        "totalDevCount": 16,
        "totalCompute": 100,
        "totalVRam": 65536,
        "healthy": True,
        "qosPolicy": "fixed-share",
    }
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "250", "metax-tech.com/sgpu": "16"}
    await live.add_node(name, capacity, {"metax-tech.com/node-gpu-devices": json.dumps([card])})


def holder(live: Live, node: str) -> str:
    """Who holds the lock of a node."""
    value = live.node(node)["metadata"].get("annotations", {}).get(LOCK, ",,")
    return str(value).rpartition(",")[2]


async def set_lock(live: Live, node: str, value: str | None) -> None:
    await live.client.patch(NODES, node, "", {"metadata": {"annotations": {LOCK: value}}}, kind=MERGE_PATCH)
