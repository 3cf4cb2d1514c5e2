from __future__ import annotations

from tests.tinykube.server.controllers.world import World
from tinykube.server.controllers.expiry import Expiry
from tinykube.server.kinds import CONFIG_MAP, EVENT


def event(world: World, name: str) -> None:
    world.create(EVENT, name, involvedObject={"kind": "Pod", "namespace": "default", "name": "p"})


def test_events_are_forgotten_after_an_hour_and_nothing_else_is() -> None:
    world = World()
    expiry = world.runs(Expiry(world.registry))
    event(world, "a")
    world.create(CONFIG_MAP, "kept")
    expiry.pass_time(1800)
    event(world, "b")
    expiry.pass_time(1799)
    assert world.names(EVENT) == ["a", "b"]
    expiry.pass_time(60)
    assert world.names(EVENT) == ["b"]
    expiry.pass_time(1800)
    assert world.names(EVENT) == []
    assert "kept" in world.names(CONFIG_MAP)


def test_an_event_that_happens_again_is_kept_longer() -> None:
    world = World()
    expiry = world.runs(Expiry(world.registry))
    event(world, "a")
    expiry.pass_time(3000)
    stored = world.store.stored(EVENT, "default", "a")
    assert stored is not None
    world.registry.put(EVENT, {**stored.object, "count": 2}, stored)
    expiry.pass_time(3000)
    assert world.names(EVENT) == ["a"]
    expiry.pass_time(700)
    assert world.names(EVENT) == []


def test_an_event_that_somebody_deletes_is_no_trouble() -> None:
    world = World()
    expiry = world.runs(Expiry(world.registry))
    event(world, "a")
    world.delete(EVENT, "a")
    event(world, "b")
    expiry.pass_time(3660)
    assert world.names(EVENT) == []


def test_events_of_an_earlier_run_are_forgotten_too() -> None:
    earlier = World()
    event(earlier, "a")
    world = World(earlier.store)
    expiry = world.runs(Expiry(world.registry))
    expiry.pass_time(3600)
    assert world.names(EVENT) == []


def test_many_events_are_forgotten_in_few_steps() -> None:
    world = World()
    expiry = Expiry(world.registry)
    acts = 0
    schedule = world.runs(expiry)
    for index in range(50):
        event(world, f"e{index}")
        schedule.pass_time(1)
    world.time += 3600
    while expiry.act() is not None:
        acts += 1
        world.time += 60
    assert acts <= 2
    assert world.names(EVENT) == []
