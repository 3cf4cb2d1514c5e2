from __future__ import annotations

import pytest

from tests.tinykube.server.controllers.world import Damaged, FullDisk, World
from tinykube.server.controllers.strays import Strays
from tinykube.server.kinds import NODE, POD
from tinykube.server.store import Change, Store
from tinykube.status import ApiError


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while() -> None:
    world = World()
    for name in ("one", "two"):
        world.node(name)
        world.pod(f"on-{name}", name)
    world.pod("waiting")
    strays = world.runs(Strays(world.registry))
    world.delete(NODE, "one")
    strays.pass_time(39)
    assert world.names(POD) == ["on-one", "on-two", "waiting"]
    strays.pass_time(1)
    assert world.names(POD) == ["on-two", "waiting"]


def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    world = World()
    world.node("one")
    world.pod("a", "one")
    strays = world.runs(Strays(world.registry))
    world.delete(NODE, "one")
    strays.pass_time(30)
    world.node("one")
    strays.pass_time(1000)
    assert world.names(POD) == ["a"]


def test_pods_stay_if_their_node_cannot_be_read_until_a_new_one_goes() -> None:
    earlier = World()
    earlier.node("one")
    earlier.pod("a", "one")
    world = World(Store(Damaged(earlier, (NODE, "one"))))
    strays = world.runs(Strays(world.registry))
    strays.pass_time(1000)
    assert world.names(POD) == ["a"]
    world.node("one")
    world.delete(NODE, "one")
    strays.pass_time(1000)
    assert world.names(POD) == []


def test_pods_that_could_not_be_removed_are_removed_when_there_is_room_again() -> None:
    disk = FullDisk(POD)
    world = World(Store(disk))
    world.pod("a", "gone")
    strays = Strays(world.registry)
    world.time += 40
    disk.full = True
    with pytest.raises(ApiError, match="no room"):
        strays.act()
    disk.full = False
    strays.act()
    assert world.names(POD) == []


def test_each_node_has_its_own_time() -> None:
    world = World()
    for name in ("one", "two"):
        world.node(name)
        world.pod(f"on-{name}", name)
    strays = world.runs(Strays(world.registry))
    world.delete(NODE, "one")
    strays.pass_time(20)
    world.delete(NODE, "two")
    strays.pass_time(20)
    assert world.names(POD) == ["on-two"]
    strays.pass_time(20)
    assert world.names(POD) == []


def test_pods_of_nodes_that_were_never_there_are_removed_too() -> None:
    world = World()
    world.pod("early", "nowhere")
    strays = world.runs(Strays(world.registry))
    strays.pass_time(20)
    world.pod("late", "elsewhere")
    strays.pass_time(20)
    assert world.names(POD) == ["late"]
    strays.pass_time(20)
    assert world.names(POD) == []


def test_who_watches_a_stray_is_told_that_it_failed_and_why() -> None:
    world = World()
    world.pod("running", "nowhere", phase="Running")
    world.pod("done", "nowhere", phase="Succeeded")
    seen: list[Change] = []
    world.store.subscribe(seen.append)
    world.runs(Strays(world.registry)).pass_time(40)
    last = {each.object["metadata"]["name"]: each.object["status"] for each in seen if each.type == "DELETED"}
    assert (last["running"]["phase"], last["done"]["phase"]) == ("Failed", "Succeeded")
    [condition] = [each for each in last["running"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByPodGC")
    assert condition["message"] == "PodGC: node no longer exists"


def test_a_stray_with_a_finalizer_is_marked_and_left_to_who_holds_it() -> None:
    world = World()
    world.pod("held", "nowhere", finalizers=["x.io/held"])
    world.runs(Strays(world.registry)).pass_time(1000)
    [pod] = world.store.list(POD)
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["status"]["phase"] == "Failed"


def test_a_pod_that_was_half_deleted_when_the_server_was_killed_is_gone_with_the_next_one() -> None:
    world = World()
    world.pod("half")
    world.pod("held", finalizers=["x.io/held"])
    for name in ("half", "held"):
        stored = world.store.stored(POD, "default", name)
        assert stored is not None
        marks = {"deletionTimestamp": world.registry.now(), "deletionGracePeriodSeconds": 0}
        metadata = {**stored.object["metadata"], **marks}
        world.registry.put(POD, {**stored.object, "metadata": metadata}, stored)
    world.runs(Strays(world.registry))
    assert world.names(POD) == ["held"]
