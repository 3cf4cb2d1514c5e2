"""The scheduler on the embedded API server: stories, then the invariants under random faults."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduler.live import (
    MEMORY,
    SGPU,
    SGPU_PODS,
    Answering,
    Live,
    add_metax_node,
    holder,
    living,
    refuse,
    set_lock,
    volcano_capacity,
)
from tests.support import virtual
from tests.support.fuzz import examples
from tinykube.resource import PODS, RESOURCE_QUOTAS
from tinykube.server.store import Change
from tinykube.transport import Request, Response, Unreachable


def test_a_pod_gets_node_and_annotations_in_one_write() -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.placed() == {"a": "n1"})
            assert live.pod("a")["metadata"]["annotations"]["volcano.sh/gpu-index"] == "0"
            assert await live.events("a") == [("Scheduled", "Successfully assigned default/a to n1")]
            assert live.way.bindings == {"a": 1}

    virtual.run(story())


def test_who_waits_is_told_why_and_goes_when_a_card_is_freed() -> None:
    async def story() -> None:
        async with living() as live:
            for name in ("a", "b", "c"):
                await live.create(name, {MEMORY: "400"})
            await live.until(lambda: len(live.placed()) == 2 and live.condition("c").get("status") == "False")
            condition = live.condition("c")
            assert condition["reason"] == "Unschedulable"
            assert "largest free slice 200 MiB, 400 MiB asked" in condition["message"]
            assert await live.events("c") == [("FailedScheduling", condition["message"])]
            await live.delete("a")
            await live.until(lambda: set(live.placed()) == {"b", "c"})
            assert live.condition("c")["status"] == "True"

    virtual.run(story())


async def test_a_freed_card_is_given_away_within_milliseconds() -> None:
    """In real time: the last of ten pods each waits for the one before it."""
    async with living() as live:
        await live.create("p0", {MEMORY: "1000"})
        await live.until(lambda: "p0" in live.placed())
        for i in range(1, 10):
            await live.create(f"p{i}", {MEMORY: "1000"})
        await live.until(lambda: live.condition("p9").get("status") == "False")
        took = []
        for i in range(9):
            began = time.perf_counter()
            await live.delete(f"p{i}")
            while f"p{i + 1}" not in live.placed():
                await asyncio.sleep(0)
            took.append(time.perf_counter() - began)
        # A few milliseconds; the limits leave room for a busy machine.
        assert min(took) < 0.05, took
        assert sorted(took)[4] < 0.1, took


def test_a_request_that_means_nothing_is_told_so() -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("bad", {"koordinator.sh/gpu-core": "50"})
            await live.until(lambda: live.condition("bad").get("status") == "False")
            assert "give gpu-memory or gpu-memory-ratio beside it" in live.condition("bad")["message"]
            assert [reason for reason, _ in await live.events("bad")] == ["FailedScheduling"]

    virtual.run(story())


def test_a_warning_about_a_pod_is_logged_with_the_pod(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.placed() == {"a": "n1"})
            body = {"metadata": {"annotations": {"volcano.sh/gpu-index": "7"}}}
            await live.client.patch(PODS, "a", "default", body)
            await live.until(lambda: live.service.counters.warnings > 0)

    with caplog.at_level(logging.WARNING):
        virtual.run(story())
    assert [getattr(line, "pod", "") for line in caplog.records if "somebody changed" in line.message] == ["default/a"]


def test_pods_of_other_schedulers_are_left_alone() -> None:
    async def story() -> None:
        async with living(lambda pod: pod.spec.scheduler_name == "subak") as live:
            await live.create("theirs", {MEMORY: "100"}, schedulerName="other")
            await live.create("ours", {MEMORY: "100"}, schedulerName="subak")
            await live.until(lambda: "ours" in live.placed())
            await asyncio.sleep(60)
            assert live.placed() == {"ours": "n1"}

    virtual.run(story())


def test_nothing_is_decided_before_all_lists_are_complete() -> None:
    async def story() -> None:
        live = Live()
        await live.add_node("n1")
        hard = {"limits.nvidia.com/gpumem": "10"}
        await live.client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, "default")
        await live.create("a", {MEMORY: "100"})
        slow = asyncio.Event()

        async def disturb(request: Request, answer: Answering) -> Response:
            if request.path.endswith("/resourcequotas"):
                await slow.wait()
            return await answer()

        live.way.disturb = disturb
        await live.start()
        await asyncio.sleep(50)
        assert not live.service.ready.is_set()
        assert live.placed() == {}
        slow.set()
        await live.until(lambda: live.placed() == {"a": "n1"})
        await live.kill()

    virtual.run(story())


def test_a_server_without_koordinators_devices_will_do() -> None:
    async def story() -> None:
        live = Live()
        await live.add_node("n1")

        async def disturb(request: Request, answer: Answering) -> Response:
            return refuse(404) if request.path.endswith("/devices") else await answer()

        live.way.disturb = disturb
        await live.start()
        await live.create("a", {MEMORY: "100"})
        await live.until(lambda: live.placed() == {"a": "n1"})
        await live.kill()

    virtual.run(story())


def test_a_restarted_scheduler_knows_everything_again() -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "600"})
            await live.create("b", {MEMORY: "600"})
            await live.until(lambda: len(live.placed()) == 1)
            await live.kill()
            await live.start()
            await live.until(lambda: live.service.counters.reports == 1)
            assert len(live.placed()) == 1

    virtual.run(story())


CARDS, MIB = 2, 1000


class Faults:
    """Disturbs requests at random, until it is told to stop."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.late: set[asyncio.Task[Response]] = set()
        self.on = True

    async def disturb(self, request: Request, answer: Answering) -> Response:
        if not self.on or self.chance.random() < 0.5:
            return await answer()
        match self.chance.randrange(8):
            case 0:
                raise Unreachable("connection refused")
            case 1:
                raise ConnectionError("reset before the request arrived")
            case 2:
                await answer()
                raise ConnectionError("reset before the answer came")
            case 3:
                await answer()
                return await answer()  # it arrived twice
            case 4:
                return refuse(self.chance.choice([409, 429, 500, 503]))
            case 5:
                self.late.add(asyncio.create_task(self._later(answer)))
                raise TimeoutError
            case 6:
                await asyncio.sleep(self.chance.uniform(0, 2))
                return await answer()
            case _:
                response = await answer()
                await asyncio.sleep(self.chance.uniform(0, 2))
                return response

    async def _later(self, answer: Answering) -> Response:
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        return await answer()

    async def die(self) -> None:
        """What has not been sent yet goes with the process that would have sent it."""
        for task in self.late:
            task.cancel()
        if self.late:
            await asyncio.wait(self.late)
        self.late.clear()


class Auditor:
    """Looks at every state of the server.

    No card carries too much, a place once given stays, and whoever is bound where an agent needs the lock holds it.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._places: dict[str, tuple[str, str]] = {}
        self.problems: list[str] = []
        live.store.subscribe(lambda change: self.look())

    def look(self) -> None:
        free = self.free()
        if any(left < 0 for left in free.values()):
            self.problems.append(f"too much is given away: {free}")
        for name, pod in self._live.pods().items():
            node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
            if not node:
                continue
            if node == "m1" and uid not in self._places and holder(self._live, "m1") != name:
                self.problems.append(f"{name} is bound while {holder(self._live, 'm1')} holds the lock")
            place = node, pod["metadata"]["annotations"].get("volcano.sh/gpu-index", "")
            if self._places.setdefault(uid, place) != place:
                self.problems.append(f"{name} has moved to {place}")

    def free(self) -> dict[tuple[str, str], int]:
        free = {(f"n{node}", str(card)): MIB for node in (1, 2) for card in range(CARDS)}
        for pod in self._live.pods().values():
            if asked(pod) and pod["spec"].get("nodeName") and not is_over(pod):
                card = pod["metadata"]["annotations"]["volcano.sh/gpu-index"]
                free[pod["spec"]["nodeName"], card] -= asked(pod)
        return free


class Agent:
    """MetaX' agent: sees to the pod that the lock names, and releases the lock."""

    def __init__(self, live: Live, chance: random.Random) -> None:
        self._live = live
        self._chance = chance
        self._tasks: set[asyncio.Task[None]] = set()
        live.store.subscribe(self._see)

    def _see(self, change: Change) -> None:
        if change.object["kind"] == "Pod" and change.object["spec"].get("nodeName") == "m1":
            self._tasks.add(asyncio.ensure_future(self._allocate(change.object["metadata"]["name"])))

    async def _allocate(self, name: str) -> None:
        await asyncio.sleep(self._chance.uniform(0, 1))
        if holder(self._live, "m1") == name:
            await set_lock(self._live, "m1", None)


def is_over(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def asked(pod: dict[str, Any]) -> int:
    """The memory of a Volcano pod in MiB; 0 for others."""
    amount = str(pod["spec"]["containers"][0]["resources"]["limits"].get(MEMORY, 0))
    return int(amount[:-1]) * 1000 if amount.endswith("k") else int(amount)


async def act(live: Live, chance: random.Random, faults: Faults, number: int) -> None:
    """Something that happens in a cluster."""
    names = sorted(live.pods())
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            await live.create(f"p{number}", {MEMORY: str(chance.choice([200, 400, 600, 1000]))})
        case 4:
            await live.create(f"m{number}", SGPU)
        case 5 if names:
            name = chance.choice(names)
            await live.delete(name)
            if chance.random() < 0.5 and name.startswith("p"):
                await live.create(name, {MEMORY: "500"})  # another pod of the same name
        case 6 if live.placed():
            await live.finish(chance.choice(sorted(live.placed())))
        case 7:
            live.way.cut()
        case 8:
            await live.kill()
            await faults.die()
            await live.start()
        case _:
            await asyncio.sleep(chance.uniform(0, 5))


@given(st.integers(0, 2**32), st.integers(5, 60))
@examples(quick=5, ci=100)
def test_no_card_is_overcommitted_and_no_pod_is_lost_whatever_happens_on_the_way(seed: int, steps: int) -> None:
    chance = random.Random(seed)
    random.seed(seed)  # the jitter of pauses

    async def story() -> None:
        live = Live()
        for name in ("n1", "n2"):
            await live.add_node(name, volcano_capacity(CARDS, MIB))
        await add_metax_node(live, "m1")
        auditor = Auditor(live)
        Agent(live, chance)
        faults = Faults(chance)
        live.way.disturb = faults.disturb
        await live.start()
        for number in range(steps):
            await act(live, chance, faults, number)
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.3]))
        faults.on = False

        def nobody_waits_in_vain() -> bool:
            largest = max(auditor.free().values())
            on_m1 = sum(pod["spec"].get("nodeName") == "m1" and not is_over(pod) for pod in live.pods().values())
            return all(
                pod["spec"].get("nodeName") or (asked(pod) > largest if asked(pod) else on_m1 == SGPU_PODS)
                for pod in live.pods().values()
            )

        try:
            await live.until(nobody_waits_in_vain, 300)
            await asyncio.sleep(30)
            assert nobody_waits_in_vain()
            for name, pod in live.pods().items():
                assert bool(pod["spec"].get("nodeName")) == (live.condition(name).get("status") == "True"), name
            assert auditor.problems == []
        finally:
            await live.kill()

    virtual.run(story())
