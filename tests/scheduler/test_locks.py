"""HAMi's node lock, which MetaX' agent needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scheduler.live import (
    LOCK,
    MEMORY,
    SGPU,
    Answering,
    Live,
    add_metax_node,
    holder,
    living,
    on_bindings,
    refuse,
    set_lock,
)
from tests.support import virtual
from tinykube.transport import Request, Response


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


def test_a_server_that_is_too_busy_for_the_lock_is_asked_again() -> None:
    async def story() -> None:
        async with living() as live:
            await add_metax_node(live, "m1")
            busy = [refuse(429)] * 3

            async def disturb(request: Request, answer: Answering) -> Response:
                if request.method == "PATCH" and request.path.endswith("/nodes/m1") and busy:
                    return busy.pop()
                return await answer()

            live.way.disturb = disturb
            await live.create("a", SGPU)
            await live.until(lambda: live.placed() == {"a": "m1"})
            assert live.service.counters.bind_failures == 0

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
