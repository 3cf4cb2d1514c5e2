"""What a pod's user is told, and what he is not told any more."""

from __future__ import annotations

import asyncio

import pytest

from tests.scheduler.live import (
    MEMORY,
    Answering,
    living,
    refuse,
    volcano_capacity,
)
from tests.support import virtual
from tinykube.transport import Request, Response


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


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(refuse(429), id="429"),
        pytest.param(refuse(503), id="503", marks=pytest.mark.long),
        pytest.param(ConnectionError("reset"), id="reset", marks=pytest.mark.long),
    ],
)
def test_a_report_outlasts_a_server_that_is_busy_or_away_for_a_minute(trouble: Response | Exception) -> None:
    async def story() -> None:
        async with living() as live:
            refused = 0

            async def disturb(request: Request, answer: Answering) -> Response:
                nonlocal refused
                if request.path.endswith("/status") and asyncio.get_running_loop().time() < 60:
                    refused += 1
                    if isinstance(trouble, Exception):
                        raise trouble
                    return trouble
                return await answer()

            live.way.disturb = disturb
            await live.create("b", {MEMORY: "2000"})
            await live.until(lambda: live.condition("b").get("status") == "False")
            assert 4 < refused < 40

    virtual.run(story())
