"""Controllers in a running loop: they act by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.tinykube.server.controllers.test_garbage import reference
from tests.tinykube.server.controllers.world import FullDisk, World
from tinykube.server import controllers as module
from tinykube.server.controllers import Controllers
from tinykube.server.kinds import CONFIG_MAP, NAMESPACE, NODE, RESOURCE_QUOTA, SERVICE_ACCOUNT, Kind
from tinykube.server.store import Change, Store


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


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def full_world(kind: Kind) -> tuple[World, FullDisk]:
    disk = FullDisk(kind)
    return World(Store(disk)), disk


@pytest.mark.usefixtures("soon")
async def test_a_namespace_is_stored_and_told_though_its_account_has_no_room(caplog: pytest.LogCaptureFixture) -> None:
    world, disk = full_world(SERVICE_ACCOUNT)
    controllers = Controllers(world.registry)
    heard: list[Change] = []
    world.store.subscribe(heard.append)
    disk.full = True
    world.create(NAMESPACE, "n")
    assert [(each.kind, each.object["metadata"]["name"]) for each in heard] == [(NAMESPACE, "n")]
    await turns()
    assert world.names(SERVICE_ACCOUNT, "n") == []
    assert len(caplog.messages) == 1, "it is said once"
    disk.full = False
    await until(lambda: world.names(SERVICE_ACCOUNT, "n") == ["default"])
    controllers.close()


@pytest.mark.usefixtures("soon")
async def test_what_is_owned_goes_with_its_owner_when_there_is_room_again() -> None:
    world, disk = full_world(CONFIG_MAP)
    controllers = Controllers(world.registry)
    owner = world.create(NODE, "owner")
    for name in ("a", "b"):
        world.create(CONFIG_MAP, name, metadata={"ownerReferences": [reference(owner)]})
    disk.full = True
    world.delete(NODE, "owner")
    await turns()
    assert world.names(CONFIG_MAP) == ["a", "b"]
    disk.full = False
    await until(lambda: world.names(CONFIG_MAP) == [])
    controllers.close()


@pytest.mark.usefixtures("soon")
async def test_the_status_of_a_quota_comes_when_there_is_room_again() -> None:
    world, disk = full_world(RESOURCE_QUOTA)
    controllers = Controllers(world.registry)
    world.create(RESOURCE_QUOTA, "q", spec={"hard": {"configmaps": "9"}})
    disk.full = True
    await turns()
    disk.full = False

    def used() -> object:
        (found,) = world.store.list(RESOURCE_QUOTA)
        return found.get("status", {}).get("used")

    await until(lambda: used() == {"configmaps": "0"})
    controllers.close()
