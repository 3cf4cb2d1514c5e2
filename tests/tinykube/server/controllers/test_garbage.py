from __future__ import annotations

from typing import Any

import pytest

from tests.tinykube.server.controllers.world import Damaged, Json, Schedule, World
from tinykube.server.controllers.garbage import Garbage
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.store import Change, Store, Stored


def reference(owner: Json) -> Json:
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {**named, "uid": owner["metadata"]["uid"]}


def collected(world: World) -> tuple[Garbage, Schedule]:
    garbage = Garbage(world.registry)
    return garbage, world.runs(garbage)


def test_what_lost_its_owner_in_an_earlier_run_goes() -> None:
    earlier = World()
    owner = earlier.create(CONFIG_MAP, "owner")
    earlier.create(CONFIG_MAP, "owned", metadata={"ownerReferences": [reference(owner)]})
    earlier.delete(CONFIG_MAP, "owner")
    assert earlier.names(CONFIG_MAP) == ["owned"]
    world = World(earlier.store)
    collected(world)
    assert world.names(CONFIG_MAP) == []


def test_owners_of_kinds_that_are_not_served_count_as_being_there() -> None:
    world = World()
    _, schedule = collected(world)
    unknown = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "d", "uid": "1"}
    world.create(CONFIG_MAP, "owned", metadata={"ownerReferences": [unknown]})
    schedule.pass_time(100)
    assert world.names(CONFIG_MAP) == ["owned"]
    world.delete(CONFIG_MAP, "owned")
    schedule.pass_time(0)


def test_what_is_owned_stays_if_its_owner_cannot_be_read_until_there_is_a_new_one() -> None:
    earlier = World()
    owner = earlier.create(CONFIG_MAP, "owner")
    earlier.create(CONFIG_MAP, "owned", metadata={"ownerReferences": [reference(owner)]})
    world = World(Store(Damaged(earlier, (CONFIG_MAP, "default/owner"))))
    _, schedule = collected(world)
    schedule.pass_time(100)
    assert world.names(CONFIG_MAP) == ["owned"]
    world.create(CONFIG_MAP, "owner")
    world.delete(CONFIG_MAP, "owner")
    collected(world)
    assert world.names(CONFIG_MAP) == []


def test_who_owns_what_is_forgotten_with_them() -> None:
    world = World()
    garbage, schedule = collected(world)
    owner = world.create(CONFIG_MAP, "owner")
    for index in range(10):
        world.create(CONFIG_MAP, f"owned{index}", metadata={"ownerReferences": [reference(owner)]})
    world.delete(CONFIG_MAP, "owner")
    schedule.pass_time(0)
    assert world.names(CONFIG_MAP) == []
    assert garbage._owned == {}


def test_who_is_left_goes_when_another_went_before() -> None:
    world = World()
    _, schedule = collected(world)
    owner = world.create(CONFIG_MAP, "owner")
    for name in ("a", "b"):
        world.create(CONFIG_MAP, name, metadata={"ownerReferences": [reference(owner)]})
    world.delete(CONFIG_MAP, "a")
    schedule.pass_time(0)
    world.delete(CONFIG_MAP, "owner")
    schedule.pass_time(0)
    assert world.names(CONFIG_MAP) == []


def test_in_the_background_nobody_waits_for_those_further_down() -> None:
    world = World()
    _, schedule = collected(world)
    owner = world.create(CONFIG_MAP, "owner")
    middle = world.create(CONFIG_MAP, "middle", metadata={"ownerReferences": [reference(owner)]})
    blocking = {**reference(middle), "blockOwnerDeletion": True}
    world.create(CONFIG_MAP, "last", metadata={"ownerReferences": [blocking], "finalizers": ["x.io/held"]})
    world.delete(CONFIG_MAP, "owner")
    schedule.pass_time(0)
    assert world.names(CONFIG_MAP) == ["last"]


def test_an_orphan_has_no_trace_of_its_owners() -> None:
    world = World()
    _, schedule = collected(world)
    owner = world.create(CONFIG_MAP, "owner")
    world.create(CONFIG_MAP, "owned", metadata={"ownerReferences": [reference(owner)]})
    world.delete(CONFIG_MAP, "owner", policy="Orphan")
    schedule.pass_time(0)
    [orphan] = world.store.list(CONFIG_MAP)
    assert "ownerReferences" not in orphan["metadata"]


class Counted(dict[str, Any]):
    """An object that counts how often it is compared."""

    comparisons = 0
    __hash__ = None

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return super().__eq__(other)


def test_thousands_of_references_are_not_compared_one_by_one() -> None:
    world = World()
    garbage, _ = collected(world)
    before, now = [
        [Counted(apiVersion="x/v1", kind="X", name=name, uid=f"{name}{number}") for number in range(100)]
        for name in ("old", "new")
    ]
    versions = [
        Stored({"metadata": {"name": "c", "uid": "c", "ownerReferences": references}}, 1, b"")
        for references in (before, now)
    ]
    garbage.note(Change("MODIFIED", CONFIG_MAP, "c", versions[1], versions[0]))
    assert Counted.comparisons < 500


def test_an_owner_is_not_weighed_against_all_that_it_owns_for_each_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    _, schedule = collected(world)
    owner = world.create(CONFIG_MAP, "owner")
    for number in range(100):
        blocking = {**reference(owner), "blockOwnerDeletion": True}
        world.create(CONFIG_MAP, f"owned-{number}", metadata={"ownerReferences": [blocking]})
    looks = 0
    look = world.store.get

    def counted(*place: Any) -> Any:
        nonlocal looks
        looks += 1
        return look(*place)

    monkeypatch.setattr(world.store, "get", counted)
    world.delete(CONFIG_MAP, "owner", policy="Foreground")
    schedule.pass_time(0)
    assert world.names(CONFIG_MAP) == []
    assert looks < 1_000
