"""A small cluster for tests: the embedded API server, one kubelet, containers that follow a script."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subak.local.kubelet.kubelet import Kubelet
from subak.local.runtime.spec import Runtime
from tests.support import virtual
from tests.support.custom import CUSTOM
from tests.support.kubelet.pods import container
from tests.support.kubelet.scripted import ScriptedDevices, ScriptedRuntime
from tinykube.client import Client
from tinykube.resource import EVENTS, NODES, PODS, Resource
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.status import ApiError
from tinykube.transport import Request, Response, Transport

PATIENCE = 10_000.0
"""In seconds of virtual time, most of which pass at once."""

ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "110"}


def in_virtual_time(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test whose pauses take no time."""

    @functools.wraps(story)
    def test(*args: Any, **kwargs: Any) -> None:
        virtual.run(story(*args, **kwargs))

    return test


@dataclass
class Counting:
    """A transport that counts requests; a test may break some."""

    inner: Transport
    requests: list[Request] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    fault: Callable[[Request], Exception | None] = lambda _: None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    slow: str = ""
    """Requests of this method wait for the gate."""

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        if request.method == self.slow:
            await self.gate.wait()
        problem = self.fault(request)
        if problem is not None:
            raise problem
        response = await self.inner.send(request)
        late = response.status == 404 or b"metadata.uid" in response.body
        if response.status >= 400 and request.method == "PATCH" and not late:
            self.refused.append(response.body)
        return response

    async def close(self) -> None:
        """Nothing to close."""

    def count(self, method: str, ending: str) -> int:
        return sum(each.method == method and each.path.endswith(ending) for each in self.requests)


@dataclass
class Harness:
    """A kubelet under test, with its API server, runtime and cards."""

    client: Client
    store: Store
    kubelet: Kubelet
    runtime: Any
    devices: ScriptedDevices
    wire: Counting

    async def create(self, *containers: dict[str, Any], name: str = "web", **spec: Any) -> dict[str, Any]:
        """A pod that is bound to a node already."""
        spec = {"nodeName": "node-1", "containers": list(containers) or [container()], **spec}
        init = spec.pop("init", None)
        if init:
            spec["initContainers"] = init
        return await self.add(PODS, {"metadata": {"name": name, **spec.pop("metadata", {})}, "spec": spec})

    async def add(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.client.create(resource, body, "default" if resource.namespaced else "")

    async def get(self, name: str = "web") -> dict[str, Any]:
        return await self.client.get(PODS, name, "default")

    async def until(
        self, condition: Callable[[dict[str, Any]], Any], name: str = "web", patience: float = PATIENCE
    ) -> dict[str, Any]:
        """Wait until a pod meets a condition."""
        pod: dict[str, Any] = {}
        try:
            async with asyncio.timeout(patience):
                while True:
                    pod = await self.get(name)
                    if condition(pod):
                        return pod
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"{name} never came to be so: {pod.get('status')}, events {await self.events()}"
            ) from None

    async def phase(self, phase: str, name: str = "web") -> dict[str, Any]:
        return await self.until(lambda pod: pod["status"]["phase"] == phase, name)

    async def gone(self, name: str = "web", patience: float = PATIENCE) -> None:
        async with asyncio.timeout(patience):
            while True:
                try:
                    await self.get(name)
                except ApiError as error:
                    if error.code != 404:
                        raise
                    return
                await asyncio.sleep(0.02)

    async def delete(self, name: str = "web", grace: int | None = None) -> None:
        await self.client.delete(PODS, name, "default", grace=grace)

    async def events(self, reason: str = "") -> list[str]:
        """The events of pods: `Reason: message`."""
        found = (await self.client.list(EVENTS)).items
        return [f"{each['reason']}: {each['message']}" for each in found if reason in ("", each["reason"])]

    async def event(self, reason: str) -> str:
        """Wait for an event."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await self.events(reason)):
                await asyncio.sleep(0.02)
        return found[0]


def now() -> float:
    """The clock of virtual time."""
    return 1_800_000_000.0 + asyncio.get_running_loop().time()


@asynccontextmanager
async def harness(
    directory: Path,
    *,
    store: Store | None = None,
    nodes: Sequence[str] = ("node-1",),
    runtime: Runtime | None = None,
    stand_in: Runtime | None = None,
    processes: bool = False,
    clock: Callable[[], float] = now,
) -> AsyncIterator[Harness]:
    """A cluster that runs until the block ends.  A store of an earlier one has the same nodes and pods again."""
    fresh = store is None
    store = store or Store(custom=CUSTOM)
    server = Server(store, clock=clock, steady=clock)
    used = runtime or ScriptedRuntime()
    wire, devices = Counting(server), ScriptedDevices()
    kubelet = Kubelet(
        Client(wire), used, devices, nodes, directory, stand_in=stand_in, processes=processes, clock=clock
    )
    server.kubelet = kubelet
    made = Harness(Client(server), store, kubelet, used, devices, wire)
    if fresh:
        for name in nodes:
            await add_node(made.client, name)
    try:
        async with running(made):
            yield made
    finally:
        await used.close()
        await server.close()


async def add_node(client: Client, name: str) -> None:
    """Add a node with room for pods."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    await client.patch_status(NODES, name, "", {"capacity": ALLOCATABLE, "allocatable": ALLOCATABLE})


@asynccontextmanager
async def running(place: Harness) -> AsyncIterator[None]:
    """Run the kubelet."""
    task = asyncio.create_task(place.kubelet.run())
    synced = asyncio.create_task(place.kubelet.synced.wait())
    try:
        await asyncio.wait([task, synced], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            synced.cancel()
            await task
        yield
        assert place.wire.refused == [], "everything that a kubelet says is acceptable"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
