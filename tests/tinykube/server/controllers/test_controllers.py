"""Controllers in a running loop: they act by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.tinykube.server.controllers.test_garbage import reference
from tests.tinykube.server.controllers.world import FullDisk, World
from tinykube.server import controllers as module
from tinykube.server.controllers import Controllers, garbage
from tinykube.server.controllers.garbage import Garbage
from tinykube.server.controllers.namespaces import Namespaces
from tinykube.server.deletion import delete
from tinykube.server.kinds import CONFIG_MAP, NAMESPACE, NODE, RESOURCE_QUOTA, SERVICE_ACCOUNT, Kind
from tinykube.server.options import DeleteOptions
from tinykube.server.registry import Registry, Target
from tinykube.server.store import Change, Store
from tinykube.status import ApiError


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


async def test_a_controller_that_stumbles_goes_on(
    soon: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    controllers = Controllers(world.registry)
    await turns()
    act, stumbles = Namespaces.act, 3

    def stumbling(self: Namespaces) -> float | None:
        nonlocal stumbles
        stumbles -= 1
        if stumbles >= 0:
            raise ValueError("secret")
        return act(self)

    monkeypatch.setattr(Namespaces, "act", stumbling)
    world.create(NAMESPACE, "n")
    world.delete(NAMESPACE, "n")
    await until(lambda: "n" not in world.names(NAMESPACE))
    (said,) = caplog.messages
    assert said.startswith("namespaces: ValueError at test_controllers.py:")
    controllers.close()


@pytest.mark.parametrize(
    ("refusal", "left"),
    [(ApiError(403, "Forbidden", "no"), 1), (ValueError("a bug"), 0)],
    ids=["refused", "stumbled"],
)
@pytest.mark.usefixtures("soon")
async def test_one_object_that_cannot_be_deleted_does_not_save_the_others(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception, left: int
) -> None:
    """Nothing else happens in this cluster that would wake the controller."""
    world = World()
    controllers = Controllers(world.registry)
    owner = world.create(NODE, "owner")
    for name in ("a", "b"):
        world.create(CONFIG_MAP, name, metadata={"ownerReferences": [reference(owner)]})
    await turns()
    refusals = [refusal]

    def reluctant(registry: Registry, target: Target, options: DeleteOptions) -> object:
        if refusals:
            raise refusals.pop()
        return delete(registry, target, options)

    monkeypatch.setattr(garbage, "delete", reluctant)
    world.delete(NODE, "owner")
    await until(lambda: len(world.names(CONFIG_MAP)) == left)
    controllers.close()


@pytest.mark.usefixtures("soon")
async def test_an_owner_that_can_never_be_let_go_saves_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    controllers = Controllers(world.registry)

    def stumble(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Garbage, "_finish", stumble)
    stuck, owner = world.create(NODE, "stuck"), world.create(NODE, "owner")
    for name, of in (("a", owner), ("b", stuck)):
        world.create(CONFIG_MAP, name, metadata={"ownerReferences": [reference(of)]})
    world.delete(NODE, "stuck", policy="Foreground")
    world.delete(NODE, "owner")
    await until(lambda: world.names(CONFIG_MAP) == [])
    assert world.names(NODE) == ["stuck"]
    controllers.close()


@pytest.mark.usefixtures("soon")
async def test_a_namespace_that_allows_no_account_keeps_none_from_the_others() -> None:
    world = World()
    controllers = Controllers(world.registry)
    others = [f"n{number}" for number in range(20)]
    for name in ("strict", *others):
        world.create(NAMESPACE, name)
    world.create(RESOURCE_QUOTA, "q", "strict", spec={"hard": {"count/serviceaccounts": "0"}})
    await turns()
    for name in ("strict", *others):
        world.delete(SERVICE_ACCOUNT, "default", name)
    await until(lambda: all(world.names(SERVICE_ACCOUNT, name) == ["default"] for name in others))
    assert world.names(SERVICE_ACCOUNT, "strict") == []
    world.delete(RESOURCE_QUOTA, "q", "strict")
    await until(lambda: world.names(SERVICE_ACCOUNT, "strict") == ["default"])
    controllers.close()
