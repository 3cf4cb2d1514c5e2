"""The agent of a node on the embedded API server, with cards that a test can change and a runtime that it plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from subak.dialects import mark
from subak.model import manifest
from subak.node.agent import Agent, Settings
from subak.node.host import Host
from subak.node.injection import Node
from subak.node.machine import Machine
from subak.node.nvml import Found
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.scheduler.live import Live
from tests.support import virtual
from tests.support.machines import INTERPRETER
from tinykube.client import MERGE_PATCH, Client
from tinykube.resource import LEASES, NAMESPACES, NODES, PODS

NODE = "n1"
PLAIN = {"cpu": "4", "memory": "8Gi", "pods": "110"}


class Cards:
    """A source of cards that a test changes; follows `discovery.Source`."""

    def __init__(self, machine: Machine | None, notes: tuple[str, ...] = ()) -> None:
        self._found = Found(machine, notes)
        self._changed = asyncio.Event()

    def become(self, machine: Machine | None, *notes: str) -> None:
        self._found = Found(machine, notes)
        self._changed.set()

    def look(self) -> Found:
        return self._found

    async def change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


@dataclass
class Runtime:
    """Follows `injection.Injector`: it books running pods and releases those that are over."""

    working: bool = True
    owing: bool = False
    trouble: list[str] = field(default_factory=list)
    node: Node | None = None

    def at(self, node: Node) -> Runtime:
        self.node = node
        return self

    def owes(self) -> bool:
        return self.owing

    def follow(self, pod: manifest.Pod) -> None:
        assert self.node is not None
        if pod.finished or self.node.pods.get(pod.metadata.uid) is None:
            self.node.arbiter.release(pod)
        elif pod.started and not self.node.arbiter.holds(pod):
            self.node.arbiter.restore(pod)

    async def run(self) -> None:
        await asyncio.Event().wait()


class Rig:
    """A cluster with one node, whose kubelet a test plays, and the node's agent."""

    def __init__(self, machine: Machine | None) -> None:
        self.live = Live()
        self.cards = Cards(machine)
        self.runtime = Runtime()
        self.agent: Agent
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, host: Host | None = None, way: str = mark.NRI) -> None:
        """Start a new agent."""
        self._stopped = asyncio.Event()
        settings = Settings(NODE, way, host="127.0.0.1", port=0)
        client = Client(self.live.way, "subak-agent")
        self.agent = Agent(client, settings, INTERPRETER, self.cards, host, self.runtime.at)
        self._task = asyncio.create_task(self.agent.run(self._stopped))

    async def end(self) -> None:
        """Ask it to end."""
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def kill(self) -> None:
        """Kill it: it cannot take leave."""
        if self._task is not None and not self._task.done():

            async def nothing() -> None:
                pass

            self.agent._leave = nothing  # type: ignore[method-assign]
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def node(self) -> dict[str, Any]:
        return self.live.node(NODE)

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.node["metadata"].get("annotations") or {})

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.node["metadata"].get("labels") or {})

    @property
    def capacity(self) -> dict[str, str]:
        """What the node has beside the plain amounts; it must be the same as is allocatable."""
        status = self.node["status"]
        capacity, allocatable = (
            {name: text for name, text in status[part].items() if name not in PLAIN}
            for part in ("capacity", "allocatable")
        )
        assert capacity == allocatable
        return capacity

    async def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        def true() -> bool:
            if self._task is not None and self._task.done():
                self._task.result()
            return condition()

        await virtual.until(true, seconds)

    async def until_said(self) -> None:
        """Wait until the node says what the agent wants."""
        await self.until(lambda: bool(self.agent.readiness()["ready"]))

    async def set_amounts(self, **amounts: str | None) -> None:
        """Play kubelet, or somebody else, who writes to the status of the node."""
        status = {"capacity": amounts, "allocatable": amounts}
        await self.live.client.patch(NODES, NODE, "", {"status": status}, subresource="status")

    async def annotate(self, **annotations: str | None) -> None:
        await self.live.client.patch(NODES, NODE, "", {"metadata": {"annotations": annotations}}, kind=MERGE_PATCH)

    async def lease(self) -> dict[str, Any] | None:
        found = (await self.live.client.list(LEASES, "subak-system")).items
        return next(iter(found), None)

    async def run_pod(self, name: str, limits: dict[str, str], machine: Machine, phase: str = "Running") -> str:
        """A pod that a scheduler bound, which knows of no other pod, and that has this phase; gives its UID."""
        digest, _ = machine.digest(INTERPRETER)
        spec = {"containers": [{"name": "c", "image": "x", "resources": {"limits": limits}}]}
        body = {"metadata": {"name": name}, "spec": spec}
        pod = INTERPRETER.admit(msgspec.convert(body, manifest.Pod))
        placement = place(Snapshot([digest]), INTERPRETER.request(pod))
        assert placement is not None
        uid: str = (await self.live.client.create(PODS, body, "default"))["metadata"]["uid"]
        annotations = INTERPRETER.annotations(pod, placement, digest, 0)
        await self.live.client.bind(name, "default", NODE, annotations=annotations)
        await self.live.client.patch_status(PODS, name, "default", {"phase": phase}, kind=MERGE_PATCH)
        return uid


@asynccontextmanager
async def rig(machine: Machine | None, start: bool = True) -> AsyncIterator[Rig]:
    made = Rig(machine)
    await made.live.client.create(NAMESPACES, {"metadata": {"name": "subak-system"}})
    await made.live.add_node(NODE, PLAIN)
    try:
        if start:
            made.start()
        yield made
    finally:
        await made.kill()
        await made.live.server.close()


def run(story: Callable[[Rig], Coroutine[Any, Any, None]], machine: Machine | None, start: bool = True) -> None:
    """Tell a story of an agent."""

    async def tell() -> None:
        async with rig(machine, start) as made:
            if start:
                await made.until_said()
            await story(made)

    asyncio.run(tell())
