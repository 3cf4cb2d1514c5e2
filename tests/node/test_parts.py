"""A part of the agent that fails is named and started again; the others go on."""

from __future__ import annotations

import asyncio

import pytest

from subak.node.parts import Parts
from tests.support import virtual


def test_a_part_that_fails_is_started_again_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        starts: list[str] = []

        async def failing() -> None:
            starts.append("failing")
            if len(starts) < 5:
                raise ValueError("no luck")
            await asyncio.Event().wait()

        async def steady() -> None:
            starts.append("steady")
            await asyncio.Event().wait()

        parts = Parts({"failing": failing, "steady": steady})
        task = asyncio.create_task(parts.run())
        await asyncio.sleep(0.5)
        assert parts.failures == {"failing": "failing failed, and is started again: ValueError('no luck')"}
        await asyncio.sleep(200)
        assert parts.failures == {}, "it has been well for a while"
        assert starts.count("steady") == 1
        assert starts.count("failing") == 4
        task.cancel()
        await asyncio.wait({task})

    virtual.run(story())
    assert "failing failed, which is a mistake in Subak; it is started again in 1 s" in caplog.messages


def test_a_part_that_ends_is_started_again() -> None:
    async def story() -> None:
        runs = 0

        async def short() -> None:
            nonlocal runs
            runs += 1

        parts = Parts({"short": short})
        task = asyncio.create_task(parts.run())
        await asyncio.sleep(100)
        assert runs > 3
        assert parts.failures == {"short": "short has ended; it is started again"}
        task.cancel()
        await asyncio.wait({task})

    virtual.run(story())
