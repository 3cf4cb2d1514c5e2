"""Gangs whose bindings are refused, lost or cut off: none stays half for longer than it may, nothing is bound twice.

`SUBAK_E2E_SEEDS=20` tries more histories.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from aiohttp import web

from tests.e2e.batch import MEMORY, SEED, SPACE, Stage, hardware, installed, pod, stage
from tests.e2e.cluster import Cluster
from tests.e2e.controller import free_lease
from tests.e2e.proxy import Fault, Proxy
from tinykube.resource import PODS

SEEDS = range(int(os.environ.get("SUBAK_E2E_SEEDS", "1")))


@pytest.fixture(scope="module", autouse=True)
def _installed(cluster: Cluster) -> Iterator[None]:
    yield from installed(cluster)


@pytest.mark.parametrize("seed", SEEDS)
async def test_with_bindings_refused_at_random_gangs_become_whole_and_nothing_is_bound_twice(
    cluster: Cluster, seed: int
) -> None:
    chance = random.Random(seed)

    def refuse(request: web.Request) -> Fault | None:
        if request.path.endswith("/binding") and chance.random() < 0.3:
            return Fault(status=403) if chance.random() < 0.7 else Fault(lost=True)
        return None

    async with stage(cluster, hardware(3, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = refuse
        async with on.controller("--group-timeout=120s", server=between.address):
            for number in range(4):
                await on.gang(f"g{number}", 6, 5000)
            await on.books.until(lambda: on.books.bound("g") == 24, "all gangs are whole")
            assert between.disturbed
            assert max(on.books.bindings.values()) == 1
            assert not on.books.left


async def test_a_member_that_is_always_refused_ends_its_gang_after_the_timeout_and_makes_room(cluster: Cluster) -> None:
    def refuse(request: web.Request) -> Fault | None:
        return Fault(status=403) if request.path.endswith("/pods/half-3/binding") else None

    async with stage(cluster, hardware(1, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = refuse
        async with on.controller("--group-timeout=4s", server=between.address):
            await on.gang("half", 4, 8000)
            await on.books.until(lambda: on.books.bound("half") == 3, "the others are bound")
            await on.books.until(lambda: len(on.books.left) == 3, "they give back what they hold", 20)
            async with asyncio.timeout(20):
                while "GangTimeout" not in [reason for reason, _ in await on.told("half-0")]:
                    await asyncio.sleep(0.1)
            await on.gang("next", 4, 8000)
            await on.books.until(lambda: on.books.bound("next") == 4, "another gang gets the room")


def stall_after(bindings: int) -> Callable[[web.Request], Fault | None]:
    """Lets so many bindings pass; the others get no answer."""
    passed = count(1)

    def fault(request: web.Request) -> Fault | None:
        stalls = request.path.endswith("/binding") and next(passed) > bindings
        return Fault(delay=3600) if stalls else None

    return fault


async def test_killed_between_two_bindings_the_next_controller_completes_the_gang_first(cluster: Cluster) -> None:
    async with stage(cluster, hardware(2, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = stall_after(3)
        async with on.controller("--group-timeout=60s", server=between.address) as running:
            await on.gang("torn", 8, 8000)
            await on.books.until(lambda: on.books.bound("torn") == 3, "three of eight are bound")
            await running.end(signal.SIGKILL)
        await on.gang("rival", 8, 8000)
        between.fault = lambda request: None
        async with on.controller("--group-timeout=60s"):
            await on.books.until(lambda: on.books.bound("torn") == 8, "it is completed before the other")
            assert on.books.bound("rival") == 0
            assert not on.books.left
            assert max(on.books.bindings.values()) == 1
            await on.books.remove(*(f"torn-{number}" for number in range(8)))
            await on.books.until(lambda: on.books.bound("rival") == 8)


async def test_killed_midway_and_the_room_is_gone_the_half_gang_leaves_after_its_timeout(cluster: Cluster) -> None:
    async with stage(cluster, hardware(1, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = stall_after(2)
        async with on.controller("--group-timeout=4s", server=between.address) as running:
            await on.gang("torn", 4, 8000)
            await on.books.until(lambda: on.books.bound("torn") == 2, "two of four are bound")
            await running.end(signal.SIGKILL)
        # Somebody takes a card without asking, as an administrator can.
        taken = {
            each["metadata"]["annotations"]["volcano.sh/gpu-index"] for each in on.books.pods.values() if _node(each)
        }
        free = next(index for index in "0123" if index not in taken)
        await on.client.create(PODS, pod("thief", {MEMORY: "8000"}, schedulerName="nobody"), SPACE)
        record = {"volcano.sh/gpu-index": free, "volcano.sh/predicate-time": "1"}
        await on.client.bind("thief", SPACE, "batch-1", annotations=record)
        await free_lease(on.client)
        async with on.controller("--group-timeout=4s"):
            await on.books.until(lambda: len(on.books.left) == 2, "the half gang leaves", 40)
            assert all(name.startswith("torn") for name in on.books.left)


def _node(pod: dict[str, Any]) -> str:
    return str(pod["spec"].get("nodeName", ""))


async def test_two_gangs_that_want_the_same_room_do_not_block_each_other(cluster: Cluster) -> None:
    async with stage(cluster, hardware(2, 2, 10_000)) as on:
        await on.configure(SEED)
        async with on.controller():
            await asyncio.gather(on.gang("one", 4, 8000), on.gang("two", 4, 8000))
            await on.books.until(lambda: {on.books.bound("one"), on.books.bound("two")} == {0, 4}, "one of them starts")
            first, second = ("one", "two") if on.books.bound("one") else ("two", "one")
            await on.books.remove(*(f"{first}-{number}" for number in range(4)))
            await on.books.until(lambda: on.books.bound(second) == 4, "then the other")


async def test_writes_about_groups_and_queues_that_hang_hold_up_no_binding(cluster: Cluster) -> None:
    def hang(request: web.Request) -> Fault | None:
        shown = request.method == "PATCH" and ("podgroups" in request.path or "queues" in request.path)
        return Fault(delay=3600) if shown else None

    async with stage(cluster, hardware(2, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = hang
        async with on.controller(server=between.address):
            for number in range(20):
                await on.gang(f"g{number}", 2, 2000)
            await on.books.until(lambda: on.books.bound("g") == 40, "all are bound", 20)
            assert between.disturbed
            between.fault = lambda request: None
            for number in range(20):
                await on.until_status(f"g{number}", lambda status: status.get("running") == 2)


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_again_and_again_while_bindings_fail_no_gang_stays_half_for_long(
    cluster: Cluster, seed: int
) -> None:
    chance = random.Random(seed)
    timeout = 8.0

    def disturb(request: web.Request) -> Fault | None:
        if not request.path.endswith("/binding"):
            return None
        return chance.choices((None, Fault(status=403), Fault(lost=True), Fault(delay=0.3)), (5, 2, 1, 2))[0]

    async with stage(cluster, hardware(3, 4, 10_000)) as on, Proxy(cluster) as between:
        await on.configure(SEED)
        between.fault = disturb
        halves = Halves(on, {f"g{number}": 4 for number in range(8)})  # there is room for five or six of them
        for number in range(8):
            await on.gang(f"g{number}", 4, chance.choice((4000, 6000, 8000)))
        for _ in range(4):
            async with on.controller(f"--group-timeout={timeout:.0f}s", server=between.address) as running:
                await on.books.for_a_while(halves.see, "", chance.uniform(0.3, 2.0))
                await running.end(signal.SIGKILL)
        between.fault = lambda request: None
        async with on.controller(f"--group-timeout={timeout:.0f}s"):
            await on.books.until(lambda: halves.see() and halves.whole() >= 3, "some gangs are whole", 30)
            await on.books.until(lambda: halves.see() and not halves.since, "and none is half", 30)
        # Time counts anew for each controller, and starting one takes its time too.
        assert max(halves.longest.values(), default=0.0) < 5 * timeout, halves.longest


class Halves:
    """For how long each gang has been half bound."""

    def __init__(self, on: Stage, least: dict[str, int]) -> None:
        self._books = on.books
        self._least = least
        self.since: dict[str, float] = {}
        self.longest: dict[str, float] = {}

    def see(self) -> bool:
        """Look at all gangs."""
        now = asyncio.get_running_loop().time()
        for name, least in self._least.items():
            if 0 < self._books.bound(f"{name}-") < least:
                since = self.since.setdefault(name, now)
                self.longest[name] = max(self.longest.get(name, 0.0), now - since)
            else:
                self.since.pop(name, None)
        return True

    def whole(self) -> int:
        """How many have all that they need."""
        return sum(1 for name, least in self._least.items() if self._books.bound(f"{name}-") >= least)
