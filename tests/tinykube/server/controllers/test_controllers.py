"""Controllers in a running loop: they act by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.tinykube.server.controllers.world import World
from tinykube.server.controllers import Controllers
from tinykube.server.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_they_act_after_the_write_and_not_within_it() -> None:
    world = World()
    controllers = Controllers(world.registry)
    world.create(NAMESPACE, "n")
    assert world.names(SERVICE_ACCOUNT, "n") == ["default"]
    world.delete(NAMESPACE, "n")
    assert "n" in world.names(NAMESPACE)
    await until(lambda: "n" not in world.names(NAMESPACE))
    controllers.close()


async def test_they_stop_when_they_are_closed() -> None:
    world = World()
    controllers = Controllers(world.registry)
    world.create(NAMESPACE, "n")
    world.delete(NAMESPACE, "n")
    controllers.close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert "n" in world.names(NAMESPACE)


def test_what_is_to_be_done_before_there_is_a_loop_is_done_later() -> None:
    earlier = World()
    earlier.create(NAMESPACE, "n")
    earlier.delete(NAMESPACE, "n")
    world = World(earlier.store)
    controllers = Controllers(world.registry)

    async def live() -> None:
        assert "n" in world.names(NAMESPACE)
        world.create(CONFIG_MAP, "any")
        await until(lambda: "n" not in world.names(NAMESPACE))
        controllers.close()

    asyncio.run(live())
