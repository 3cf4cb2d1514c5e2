"""The scheduler on the embedded API server: stories, then the invariants under random faults."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subak.kube.client import MERGE_PATCH
from subak.kube.resource import NODES, RESOURCE_QUOTAS
from subak.kube.transport import Request, Response, Unreachable
from subak.local.api.store import Change
from tests import virtual
from tests.scheduler.live import MEMORY, Live, living, refuse, volcano_capacity

Answering = Callable[[], Coroutine[Any, Any, Response]]


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


def on_bindings(*answers: Response | Exception, carry_out: bool = False) -> Any:
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


@pytest.mark.parametrize("outcome", [ConnectionError("reset"), TimeoutError(), refuse(500), refuse(409)])
def test_a_binding_whose_answer_is_lost_is_looked_up_and_not_sent_again(outcome: Response | Exception) -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(outcome, carry_out=True)
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bound == 1)
            await live.create("b", {MEMORY: "600"})
            await live.until(lambda: live.condition("b").get("status") == "False")
            assert live.placed() == {"a": "n1"}
            assert live.way.bindings == {"a": 1}
            assert [reason for reason, _ in await live.events("a")] == ["Scheduled"]

    virtual.run(story())


def test_a_binding_that_did_not_arrive_is_sent_again_as_it_was() -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(ConnectionError("reset"), TimeoutError(), refuse(503))
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bound == 1)
            assert live.way.bindings == {"a": 4}
            assert live.service.counters.bind_failures == 0

    virtual.run(story())


@pytest.mark.parametrize("code", [403, 404, 409, 422])
def test_a_refused_binding_gives_the_card_back_and_the_pod_is_tried_later(code: int) -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(refuse(code))
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bind_failures == 1)
            assert not live.service.core.snapshot.bookings
            await live.until(lambda: live.placed() == {"a": "n1"})
            messages = [message for _, message in await live.events("a")]
            assert f"binding to n1 failed: refused with {code}" in messages

    virtual.run(story())


def test_a_server_that_cannot_bind_at_all_does_not_keep_the_card_for_ever() -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(*[refuse(500)] * 7)
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bind_failures == 1)
            await live.until(lambda: live.placed() == {"a": "n1"})

    virtual.run(story())


def test_a_binding_that_arrives_long_after_we_gave_up_waiting_finds_its_card_free() -> None:
    async def story() -> None:
        async with living() as live:
            late: set[asyncio.Task[Response]] = set()

            async def arrive(answer: Answering) -> Response:
                await asyncio.sleep(9)
                return await answer()

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.path.endswith("/a/binding"):
                    late.add(asyncio.create_task(arrive(answer)))
                    raise TimeoutError
                return await answer()

            live.way.disturb = disturb
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: bool(late))
            await live.create("b", {MEMORY: "600"})
            await live.until(lambda: len(late) == 5 and all(task.done() for task in late))
            await asyncio.sleep(60)
            assert live.placed() == {"a": "n1"}

    virtual.run(story())


def test_a_pod_that_somebody_else_has_bound_is_accepted_where_it_is() -> None:
    async def story() -> None:
        async with living() as live:
            await live.add_node("n2", volcano_capacity(1, 1000))

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.path.endswith("/a/binding"):
                    await live.client.bind("a", "default", "n2", annotations={"volcano.sh/gpu-index": "0"})
                return await answer()

            live.way.disturb = disturb
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bind_failures == 1)
            await live.create("b", {MEMORY: "1000"})
            await live.until(lambda: len(live.placed()) == 2)
            assert live.placed() == {"a": "n2", "b": "n1"}

    virtual.run(story())


def test_a_pod_that_is_bound_is_never_said_to_be_unschedulable() -> None:
    async def story() -> None:
        async with living() as live:
            late = asyncio.Event()

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.path.endswith("/b/status"):
                    await late.wait()
                return await answer()

            live.way.disturb = disturb
            await live.create("a", {MEMORY: "600"})
            await live.create("b", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.reports == 1)
            await live.delete("a")
            await live.until(lambda: live.placed() == {"b": "n1"})
            late.set()
            await asyncio.sleep(60)
            assert live.condition("b")["status"] == "True"

    virtual.run(story())


def test_only_the_latest_reason_is_told() -> None:
    async def story() -> None:
        async with living() as live:
            held, late = asyncio.Event(), asyncio.Event()

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.path.endswith("/b/status") and not held.is_set():
                    held.set()
                    await late.wait()
                return await answer()

            live.way.disturb = disturb
            await live.create("b", {MEMORY: "2000"})
            await live.until(held.is_set)
            await live.add_node("n2", volcano_capacity(1, 1500))
            await live.until(lambda: "1,500" in live.condition("b").get("message", ""))
            newest = live.condition("b")["message"]
            late.set()
            await asyncio.sleep(60)
            assert live.condition("b")["message"] == newest

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


# HAMi's node lock, which MetaX' agent needs

LOCK = "hami.io/mutex.lock"
SGPU = {"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "10", "metax-tech.com/vmemory": "4"}


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


def test_pods_that_need_the_lock_of_a_node_come_one_after_the_other() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            for name in ("a", "b", "c"):
                await live.create(name, SGPU)
            for expected in ("a", "b", "c"):
                await live.until(lambda: holder(live, "m1") != "" and len(live.placed()) > 0)
                await asyncio.sleep(60)
                assert holder(live, "m1") == expected
                assert max(live.placed()) == expected, "the others wait"
                await live.create("0-unlocked", {MEMORY: "100"})
                await live.until(lambda: "0-unlocked" in live.placed(), 1)
                await live.delete("0-unlocked")
                await set_lock(live, "m1", None)  # the agent has seen to the pod

    virtual.run(story())


async def goes(live: Live) -> None:
    await live.delete("other")


async def ends(live: Live) -> None:
    await live.finish("other")


async def settles_elsewhere(live: Live) -> None:
    await live.client.bind("other", "default", "n1")


@pytest.mark.parametrize("leave", [goes, ends, settles_elsewhere])
def test_a_lock_is_broken_when_its_holder_has_no_business_there(leave: Callable[[Live], Any]) -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await live.create("other", {MEMORY: "5000"})
            now = datetime.now(UTC).isoformat(timespec="seconds")
            await set_lock(live, "m1", f"{now},default,other")
            await live.create("a", SGPU)
            await asyncio.sleep(60)
            assert live.placed() == {}
            await leave(live)
            await live.until(lambda: live.placed().get("a") == "m1", 5)
            assert holder(live, "m1") == "a"

    virtual.run(story())


def test_a_lock_is_broken_when_it_is_void() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await live.create("other", {MEMORY: "5000"})
            old = datetime.now(UTC) - timedelta(minutes=4)
            await set_lock(live, "m1", f"{old.isoformat(timespec='seconds')},default,other")
            await live.create("a", SGPU)
            await asyncio.sleep(40)
            assert live.placed() == {}
            await live.until(lambda: live.placed() == {"a": "m1"}, 40)

    virtual.run(story())


def test_a_lock_that_cannot_be_read_is_respected() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await set_lock(live, "m1", "somebody")
            await live.create("a", SGPU)
            await asyncio.sleep(1000)
            assert live.placed() == {}
            await set_lock(live, "m1", None)
            await live.until(lambda: live.placed() == {"a": "m1"}, 5)

    virtual.run(story())


def test_a_binding_that_fails_releases_the_lock() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            live.way.disturb = on_bindings(refuse(403))
            await live.create("a", SGPU)
            await live.until(lambda: live.service.counters.bind_failures == 1)
            assert LOCK not in live.node("m1")["metadata"]["annotations"]
            await live.until(lambda: live.placed() == {"a": "m1"})
            assert holder(live, "m1") == "a"

    virtual.run(story())


def test_a_pod_that_goes_while_it_waits_for_the_lock_takes_nothing_with_it() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            for name in ("a", "b", "c"):
                await live.create(name, SGPU)
            await live.until(lambda: "a" in live.placed())
            await live.delete("b")
            await asyncio.sleep(1)
            await set_lock(live, "m1", None)
            await live.until(lambda: holder(live, "m1") == "c")
            assert set(live.service.core.snapshot.bookings) == {"default/a", "default/c"}
            assert live.way.bindings["b"] == 0

    virtual.run(story())


def test_a_lock_that_an_earlier_run_took_for_a_pod_that_waits_now_holds_nobody_up() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await live.kill()
            for name in ("a", "b"):
                await live.create(name, SGPU)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            await set_lock(live, "m1", f"{now},default,b")
            await live.start()
            await live.until(lambda: len(live.placed()) == 1, 5)
            assert live.placed() == {holder(live, "m1"): "m1"}
            await set_lock(live, "m1", None)
            await live.until(lambda: len(live.placed()) == 2, 5)

    virtual.run(story())


def test_who_takes_the_lock_at_the_same_moment_as_another_waits() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            await live.create("other", {MEMORY: "5000"})
            taken = datetime.now(UTC).isoformat(timespec="seconds") + ",default,other"

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "PATCH" and request.path.endswith("/m1"):
                    live.way.disturb = None
                    await set_lock(live, "m1", taken)
                return await answer()

            live.way.disturb = disturb
            await live.create("a", SGPU)
            await asyncio.sleep(30)
            assert live.placed() == {}
            assert holder(live, "m1") == "other"
            await set_lock(live, "m1", None)
            await live.until(lambda: live.placed() == {"a": "m1"}, 5)

    virtual.run(story())


# Faults

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
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
            return all(asked(pod) > largest or pod["spec"].get("nodeName") for pod in live.pods().values())

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
