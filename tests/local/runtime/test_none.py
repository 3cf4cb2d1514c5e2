from __future__ import annotations

import asyncio

import pytest

from subak.local.runtime.none import Nothing
from subak.local.runtime.spec import Spec, StartError


async def test_a_container_runs_until_it_is_stopped() -> None:
    container = await Nothing().start(Spec("a", ["no-such-program"]))
    waiting = asyncio.create_task(container.wait())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.01)
    await container.stop(30)
    assert (await waiting, await container.wait(), container.pid) == (143, 143, 0)


async def test_one_who_stops_waiting_disturbs_nobody() -> None:
    container = await Nothing().start(Spec("a", ["x"]))
    first, second = (asyncio.create_task(container.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await container.stop(0)
    assert await second == 143


async def test_nothing_can_be_run_in_it() -> None:
    container = await Nothing().start(Spec("default/a/main", ["x"]))
    with pytest.raises(StartError, match="default/a/main has no process"):
        await container.execute(["true"], {}, stdin=False, tty=False)
