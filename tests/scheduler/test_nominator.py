"""Preemption on an API server: who leaves says why, who waits says where, and a restart sends nobody away twice."""

from __future__ import annotations

import asyncio
from typing import Any

from subak.scheduler.messages import Nominate
from subak.scheduler.nominator import Nominator
from tests.scheduler.live import MEMORY, Answering, Live, living, refuse
from tests.support import virtual
from tinykube.client import Client
from tinykube.resource import PODS, PRIORITY_CLASSES
from tinykube.transport import Request, Response, Unreachable


async def rank(live: Live) -> None:
    """Let there be important pods."""
    await live.client.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})


async def full(live: Live) -> None:
    """The only card is taken by a pod that takes its time to leave."""
    await rank(live)
    await live.create("low", {MEMORY: "800"})
    await live.until(lambda: "low" in live.placed())


def status(live: Live, name: str) -> Any:
    return live.pod(name)["status"]


def marks(live: Live, name: str) -> list[str]:
    return [each["reason"] for each in status(live, name)["conditions"] if each["type"] == "DisruptionTarget"]


async def vip(live: Live) -> None:
    await live.create("vip", {MEMORY: "700"}, priorityClassName="high")
    await live.until(lambda: status(live, "vip").get("nominatedNodeName") == "n1")
    await live.until(lambda: "deletionTimestamp" in live.pod("low")["metadata"])


def test_a_victim_leaves_and_the_pod_that_waits_for_it_is_bound() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)
            await vip(live)
            assert marks(live, "low") == ["PreemptionByScheduler"]
            uid = live.pod("vip")["metadata"]["uid"]
            assert ("Preempted", f"Preempted by pod {uid} on node n1") in await live.events("low")
            await live.until(lambda: "waits on node n1 for 1 pod to leave" in live.condition("vip").get("message", ""))
            assert "vip" not in live.placed()
            await live.delete("low")
            await live.until(lambda: live.placed() == {"vip": "n1"})
            assert live.service.counters.evicted == 1

    virtual.run(story())


def test_a_scheduler_that_is_killed_midway_leaves_it_to_the_next_one() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)
            await vip(live)
            await live.kill()
            await live.start()
            await live.service.ready.wait()
            await live.create("rival", {MEMORY: "700"}, priorityClassName="high")
            await live.until(lambda: bool(live.condition("rival")))
            await live.delete("low")
            await live.until(lambda: live.placed() == {"vip": "n1"})
            assert live.service.counters.evicted == 0

    virtual.run(story())


def test_a_victim_that_was_only_marked_is_deleted_by_the_next_scheduler() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)

            async def no_deletion(request: Request, answer: Answering) -> Response:
                if request.method == "DELETE":
                    raise Unreachable("away")
                return await answer()

            live.way.disturb = no_deletion
            await live.create("vip", {MEMORY: "700"}, priorityClassName="high")
            await live.until(lambda: marks(live, "low") == ["PreemptionByScheduler"])
            await live.kill()
            assert "deletionTimestamp" not in live.pod("low")["metadata"]
            live.way.disturb = None
            await live.start()
            await live.until(lambda: "deletionTimestamp" in live.pod("low")["metadata"])
            await live.delete("low")
            await live.until(lambda: live.placed() == {"vip": "n1"})

    virtual.run(story())


def test_the_nomination_is_cleared_when_the_place_is_lost() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)
            await live.client.create(PRIORITY_CLASSES, {"metadata": {"name": "higher"}, "value": 2000})
            await vip(live)
            await live.create("king", {MEMORY: "700"}, priorityClassName="higher")
            await live.until(lambda: status(live, "king").get("nominatedNodeName") == "n1")
            await live.until(lambda: not status(live, "vip").get("nominatedNodeName"))
            await live.delete("low")
            await live.until(lambda: live.placed() == {"king": "n1"})

    virtual.run(story())


def test_a_refused_eviction_is_tried_again_later() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)
            refusals = [403]

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "DELETE" and refusals:
                    return refuse(refusals.pop())
                return await answer()

            live.way.disturb = disturb
            await vip(live)
            assert not refusals

    virtual.run(story())


def test_only_the_latest_wish_counts_and_trouble_is_outlasted() -> None:
    async def story() -> None:
        async with living() as live:
            await live.create("a", {MEMORY: "5000"})
            uid = live.pod("a")["metadata"]["uid"]
            nominator = Nominator(Client(live.way))
            written: list[bytes] = []
            troubles = [Unreachable("away")] * 8

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "PATCH" and b"nominatedNodeName" in (request.body or b""):
                    if troubles:
                        await nominator.nominate(Nominate("default/a", uid, ""))
                        raise troubles.pop()
                    written.append(request.body or b"")
                return await answer()

            live.way.disturb = disturb
            await nominator.nominate(Nominate("default/a", uid, "n1"))
            assert written
            assert all(b"null" in each for each in written)
            assert "nominatedNodeName" not in status(live, "a")
            await nominator.nominate(Nominate("default/a", "4f6a0f3c-0000-4000-8000-000000000000", "n1"))
            assert "nominatedNodeName" not in (await live.client.get(PODS, "a", "default"))["status"]

    virtual.run(story())


def test_a_victim_leaves_only_after_it_is_written_for_whom() -> None:
    async def story() -> None:
        async with living() as live:
            await full(live)
            seen: list[object] = []

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "DELETE":
                    seen.append(status(live, "vip").get("nominatedNodeName"))
                elif request.method == "PATCH" and b"nominatedNodeName" in (request.body or b""):
                    await asyncio.sleep(5)
                return await answer()

            live.way.disturb = disturb
            await vip(live)
            assert seen == ["n1"]

    virtual.run(story())
