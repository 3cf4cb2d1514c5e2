from __future__ import annotations

from tests.tinykube.server.controllers.world import Json, World
from tinykube.server import bootstrap
from tinykube.server.controllers.namespaces import Namespaces
from tinykube.server.kinds import CONFIG_MAP, NAMESPACE, POD


def conditions(world: World) -> Json:
    namespace = world.store.get(NAMESPACE, "", "n")
    assert namespace is not None
    return {each["type"]: each for each in namespace["status"].get("conditions", ())}


def test_an_empty_namespace_goes_at_once() -> None:
    world = World()
    namespaces = world.runs(Namespaces(world.registry))
    world.create(NAMESPACE, "n")
    world.delete(NAMESPACE, "n")
    namespaces.pass_time(0)
    assert "n" not in world.names(NAMESPACE)


def test_pods_go_before_all_else() -> None:
    world = World()
    namespaces = world.runs(Namespaces(world.registry))
    world.create(NAMESPACE, "n")
    bootstrap.add_account(world.registry, "n")
    world.create(CONFIG_MAP, "c", "n")
    spec = {"nodeName": "x", "containers": [{"name": "c", "image": "i"}]}
    world.create(POD, "p", "n", spec=spec)
    world.delete(NAMESPACE, "n")
    namespaces.pass_time(0)
    assert world.names(CONFIG_MAP, "n") == ["c"]
    assert conditions(world)["NamespaceContentRemaining"]["status"] == "False"
    world.delete(POD, "p", "n", grace=0)
    namespaces.pass_time(0)
    assert "n" not in world.names(NAMESPACE)
    assert world.names(CONFIG_MAP, "n") == []


def test_a_condition_changes_its_time_only_with_its_status() -> None:
    world = World()
    namespaces = world.runs(Namespaces(world.registry))
    world.create(NAMESPACE, "n")
    for name in ("a", "b"):
        world.create(CONFIG_MAP, name, "n", metadata={"finalizers": ["x.io/held"]})
    world.delete(NAMESPACE, "n")
    namespaces.pass_time(0)
    before = conditions(world)["NamespaceContentRemaining"]
    assert before["message"] == "Some resources are remaining: configmaps. has 2 resource instances"
    namespaces.pass_time(10)
    stored = world.store.stored(CONFIG_MAP, "n", "a")
    assert stored is not None
    world.store.delete(CONFIG_MAP, "n", "a")
    namespaces.pass_time(0)
    after = conditions(world)["NamespaceContentRemaining"]
    assert after["message"] == "Some resources are remaining: configmaps. has 1 resource instances"
    assert after["lastTransitionTime"] == before["lastTransitionTime"]


def test_nothing_is_written_while_nothing_changes() -> None:
    world = World()
    namespaces = world.runs(Namespaces(world.registry))
    world.create(NAMESPACE, "n")
    world.create(CONFIG_MAP, "a", "n", metadata={"finalizers": ["x.io/held"]})
    world.delete(NAMESPACE, "n")
    namespaces.pass_time(0)
    revision = world.store.revision
    namespaces.pass_time(100)
    assert world.store.revision == revision


def test_a_namespace_that_was_going_in_an_earlier_run_goes_on() -> None:
    earlier = World()
    earlier.create(NAMESPACE, "n")
    earlier.delete(NAMESPACE, "n")
    world = World(earlier.store)
    world.runs(Namespaces(world.registry))
    assert "n" not in world.names(NAMESPACE)
