"""What is remembered of a node is forgotten when the node changes, and nothing is remembered of what never happened."""

from __future__ import annotations

import msgspec

from subak.model import manifest
from subak.policy.decider import Decider
from subak.policy.guesses import MOST_SHAPES, Guesses
from tests.support.preemption import World
from tests.support.world import INTERPRETER, node, register

NODES = [f"n{i}" for i in range(5)]
REGISTER = "hami.io/node-nvidia-register"


def full() -> World:
    """Nodes of one card, each with two pods of which both would have to leave."""
    described = [node(name, {"nvidia.com/gpu": 4}, {REGISTER: register(name, [16_000])}) for name in NODES]
    world = World(Decider(INTERPRETER, described))
    for name in NODES:
        for half in "ab":
            assert world.add(share(f"{name}-{half}", 8_000, on=name))
    return world


def share(name: str, mib: int, on: str = "", priority: int = 1) -> manifest.Pod:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": mib}
    annotations = {"nvidia.com/use-gpuuuid": f"GPU-{on}-0"} if on else {}
    content = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    return msgspec.convert(content, manifest.Pod)


def test_a_node_that_has_become_cheaper_is_chosen() -> None:
    world, wish = full(), share("wish", 14_000, priority=5)
    plan = world.plan(wish)
    assert plan is not None
    assert plan.placement.node == "n0"
    for half in "ab":
        world.decider.snapshot.forget(f"default/n3-{half}")
        del world.there[f"default/n3-{half}"]
    world.add(share("only", 15_000, on="n3"))
    plan = world.plan(wish)
    assert plan is not None
    assert [each.key for each in plan.victims] == ["default/only"]


def test_nothing_is_remembered_within_a_transaction() -> None:
    world, wish = full(), share("wish", 14_000, priority=5)
    there = dict(world.there)
    with world.decider.snapshot.transaction():
        for half in "ab":
            world.decider.snapshot.forget(f"default/n0-{half}")
        for quarter in "cdef":
            world.add(share(f"n0-{quarter}", 4_000, on="n0"))
        plan = world.plan(wish)
        assert plan is not None
        assert plan.placement.node == "n1"
    world.there = there
    plan = world.plan(wish)
    assert plan is not None
    assert plan.placement.node == "n0"


def test_shapes_that_were_not_asked_for_lately_are_forgotten() -> None:
    guesses = Guesses(full().decider.snapshot)
    guesses.of("first")["n1"] = None
    assert guesses.of("first") == {"n1": None}
    for i in range(MOST_SHAPES):
        guesses.of(i)
    assert guesses.of("first") == {}
