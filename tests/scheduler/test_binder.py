"""Bindings that are refused, lost, late or done by somebody else."""

from __future__ import annotations

import asyncio

import pytest

from tests.scheduler.live import (
    MEMORY,
    Answering,
    living,
    on_bindings,
    refuse,
    volcano_capacity,
)
from tests.support import virtual
from tinykube.transport import Request, Response


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


@pytest.mark.parametrize("times", [1, 4])
def test_a_busy_server_is_asked_again_and_the_pod_keeps_its_card(times: int) -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(*[refuse(429)] * times)
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bound == 1)
            assert live.way.bindings == {"a": times + 1}
            assert live.service.counters.bind_failures == 0
            assert live.service.counters.looked_up == 0

    virtual.run(story())


def test_a_server_that_stays_busy_gives_the_card_back() -> None:
    async def story() -> None:
        async with living() as live:
            live.way.disturb = on_bindings(*[refuse(429)] * 5)
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bind_failures == 1)
            await live.until(lambda: live.placed() == {"a": "n1"})

    virtual.run(story())


def test_a_busy_server_after_a_lost_answer_leaves_the_outcome_open() -> None:
    async def story() -> None:
        async with living() as live:
            sent = 0

            async def disturb(request: Request, answer: Answering) -> Response:
                nonlocal sent
                if not request.path.endswith("/binding"):
                    return await answer()
                sent += 1
                if sent == 1:
                    raise TimeoutError
                if sent == 5:  # the first one arrives at last
                    await answer()
                return refuse(429)

            live.way.disturb = disturb
            await live.create("a", {MEMORY: "600"})
            await live.until(lambda: live.service.counters.bound == 1)
            assert live.placed() == {"a": "n1"}
            assert live.service.counters.bind_failures == 0

    virtual.run(story())
