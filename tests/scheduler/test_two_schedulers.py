"""Two schedulers that both decide, on one API server: whatever they overcommit, they repair, and they agree how."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.scheduler.service import Service
from tests.scheduler.live import MEMORY, Live, volcano_capacity
from tests.support import virtual
from tests.support.fuzz import examples
from tinykube.client import Client
from tinykube.resource import EVENTS, Resource
from tinykube.server.store import Change
from tinykube.transport import Request, Response, Transport

PRIORITIES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")
CARDS, MIB = 4, 1000
FOUND_WITHIN = 5.0
SLOWEST = 0.5


class SlowWay:
    """Requests, answers and the news of watches each take some time, up to SLOWEST."""

    def __init__(self, server: Transport, chance: random.Random) -> None:
        self._server = server
        self._chance = chance

    async def send(self, request: Request) -> Response:
        await self._dawdle()
        response = await self._server.send(request)
        if response.stream is not None:
            return Response(response.status, response.headers, stream=self._late(response.stream))
        await self._dawdle()
        return response

    async def close(self) -> None:
        pass

    async def _late(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            await self._dawdle()
            yield line

    async def _dawdle(self) -> None:
        await asyncio.sleep(self._chance.choice([0, self._chance.uniform(0, SLOWEST)]))


class Auditor:
    """Looks at every state of the server, and plays the kubelet that lets evicted pods go."""

    def __init__(self, live: Live, chance: random.Random) -> None:
        self._live = live
        self._chance = chance
        self._places: dict[str, str] = {}
        self._since: dict[tuple[str, str], float] = {}
        self._going: dict[str, asyncio.Task[None]] = {}
        self.problems: list[str] = []
        self.overcommitted = 0
        live.store.subscribe(self._look)

    @property
    def evicted(self) -> int:
        """How many pods were evicted."""
        return len(self._going)

    def _look(self, change: Change) -> None:
        if change.object["kind"] != "Pod":
            return
        pod, uid = change.object, change.object["metadata"]["uid"]
        node = pod["spec"].get("nodeName", "")
        if node and self._places.setdefault(uid, node) != node:
            self.problems.append(f"{pod['metadata']['name']} has moved to {node}")
        if is_marked(pod) and uid not in self._going:
            if not self._is_needed(pod):
                self.problems.append(f"{pod['metadata']['name']} is evicted from a card that has room for it")
            self._going[uid] = asyncio.create_task(self._end(pod["metadata"]["name"]))
        self._measure()

    def _is_needed(self, evicted: dict[str, Any]) -> bool:
        """Whether the pod, beside those that stay, is too much for its card."""
        here = [pod for pod in self._live.pods().values() if place(pod) == place(evicted) and not is_marked(pod)]
        return sum(map(asked, [*here, evicted])) > MIB

    def _measure(self) -> None:
        """Note since when a card has been overcommitted by pods of which nobody has to go yet."""
        now = asyncio.get_running_loop().time()
        loads: dict[tuple[str, str], int] = {}
        for pod in self._live.pods().values():
            if place(pod)[0] and not is_marked(pod):
                loads[place(pod)] = loads.get(place(pod), 0) + asked(pod)
        too_full = {card for card, load in loads.items() if load > MIB}
        self.overcommitted += len(too_full - self._since.keys())
        self._since = {card: self._since.get(card, now) for card in too_full}
        for card, since in self._since.items():
            if now - since > FOUND_WITHIN:
                self.problems.append(f"{card} is overcommitted for {now - since:.1f} s")

    async def _end(self, name: str) -> None:
        async def is_deleted() -> None:
            while "deletionTimestamp" not in self._live.pod(name)["metadata"]:
                await asyncio.sleep(0.1)

        await asyncio.wait_for(is_deleted(), 60)
        await asyncio.sleep(self._chance.uniform(0, 3))
        await self._live.delete(name)


def place(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["spec"].get("nodeName", ""), pod["metadata"].get("annotations", {}).get("volcano.sh/gpu-index", "")


def is_marked(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "DisruptionTarget" for each in pod.get("status", {}).get("conditions", []))


def asked(pod: dict[str, Any]) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"][MEMORY])


async def story(seed: int, pods: int) -> Auditor:
    """Both schedulers see the same burst of pods, which do not all fit; in another order, as priorities differ."""
    chance = random.Random(seed)
    live = Live()
    for name in ("n1", "n2"):
        await live.add_node(name, volcano_capacity(CARDS, MIB))
    for value, name in enumerate(("low", "high")):
        # Nobody is preempted: whoever is evicted here is evicted by a repair.
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        await live.client.create(PRIORITIES, body)
    auditor = Auditor(live, chance)
    services = [Service(Client(SlowWay(live.server, chance))) for _ in range(2)]
    tasks = [asyncio.create_task(service.run()) for service in services]
    for service in services:
        await service.ready.wait()
    for number in range(pods):
        memory = {MEMORY: str(chance.choice([400, 600, 700]))}
        await live.create(f"p{number}", memory, priorityClassName=chance.choice(["low", "high"]))
        await asyncio.sleep(chance.choice([0, 0.1, 0.3]))
    await asyncio.sleep(60)

    cards = [(f"n{node}", str(row)) for node in (1, 2) for row in range(CARDS)]
    there = live.pods().values()
    most_free = max(MIB - sum(asked(pod) for pod in there if place(pod) == card) for card in cards)
    auditor.problems += [
        f"{pod['metadata']['name']} waits although it fits"
        for pod in there
        if not place(pod)[0] and asked(pod) <= most_free
    ]
    events = await live.client.list(EVENTS, "default", fields="reason=Overcommitted")
    named = {event["involvedObject"]["name"] for event in events.items}
    if len(named) != auditor.evicted:
        auditor.problems.append(f"{auditor.evicted} pods were evicted, {len(named)} with an event")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await live.server.close()
    return auditor


@given(st.integers(0, 2**32), st.integers(1, 30))
@examples(quick=10, ci=150)
def test_two_schedulers_without_a_lease_repair_what_they_overcommit(seed: int, pods: int) -> None:
    random.seed(seed)  # the jitter of pauses
    assert virtual.run(story(seed, pods)).problems == []


@pytest.mark.long
def test_two_schedulers_do_overcommit_cards_when_nothing_keeps_them_apart() -> None:
    """So the property is about something: every other story has such a card."""
    assert any(virtual.run(story(seed, 20)).evicted for seed in range(50))
