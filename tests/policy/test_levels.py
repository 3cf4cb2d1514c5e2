"""What nodes would have free without less important pods: the columns say what forgetting these pods does."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.policy.decider import Decider
from subak.policy.levels import MOST_LIMITS, Levels, Relief
from tests.support.fuzz import examples
from tests.support.preemption import World
from tests.support.world import INTERPRETER, KINDS, make, pods

STEPS = st.lists(st.tuples(pods(), st.integers(-2, 2), st.booleans()), max_size=16)


def ranked(pod: manifest.Pod, name: str, priority: int) -> manifest.Pod:
    metadata = msgspec.structs.replace(pod.metadata, name=name)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, priority=priority))


@examples(quick=20, ci=300)
@given(kinds=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4), steps=STEPS, limit=st.integers(-3, 2))
def test_columns_say_what_forgetting_does(
    kinds: list[int], steps: list[tuple[manifest.Pod, int, bool]], limit: int
) -> None:
    world = World(Decider(INTERPRETER, [make(kind, f"node-{i}") for i, kind in enumerate(kinds)]))
    snapshot = world.decider.snapshot
    relief = Relief(snapshot)
    for i, (pod, priority, look) in enumerate(steps):
        world.add(ranked(pod, f"p{i}", priority))
        if look:  # what was counted before must not be counted again
            compare(world, relief, limit)
        if i % 3 == 2 and world.there:
            gone = min(world.there)
            snapshot.forget(gone)
            del world.there[gone]
    compare(world, relief, limit)


def compare(world: World, relief: Relief, limit: int) -> None:
    snapshot = world.decider.snapshot
    emptier = [(pool, relief.without(pool, limit)) for pool in snapshot.pools]
    single = {node.name: relief.on(node.name, limit) for node in snapshot}
    before = {
        pool.nodes[at].name: (pool.state[..., at].copy(), pool.plain[:, at].copy())
        for pool in snapshot.pools
        for at in pool
    }
    with snapshot.transaction():
        for key, pod in world.there.items():
            if pod.priority <= limit:
                snapshot.forget(key)
        for pool, copy in emptier:
            for at in pool:
                name = pool.nodes[at].name
                assert np.array_equal(copy.state[..., at], pool.state[..., at])
                assert np.array_equal(copy.plain[:, at], pool.plain[:, at])
                state, plain = single[name]
                assert np.array_equal(before[name][0] + state, pool.state[..., at])
                assert np.array_equal(before[name][1] + plain, pool.plain[:, at])


def levels(*priorities: int) -> Levels:
    counted = Levels()
    for priority in priorities:
        counted.pod_came(ranked(manifest.Pod(), "a", priority), "n")
    return counted


def test_limits_are_the_priorities_below_the_highest_last() -> None:
    counted = levels(5, 5, -1, 7, 3)
    assert counted.lowest == -1
    assert counted.limits(7) == [-1, 3, 5]
    assert counted.limits(-1) == []
    counted.pod_left(ranked(manifest.Pod(), "a", -1), "n")
    assert counted.lowest == 3
    assert levels().lowest is None


def test_of_many_priorities_some_are_limits_and_the_highest_is() -> None:
    limits = levels(*range(100)).limits(60)
    assert len(limits) <= MOST_LIMITS
    assert limits[-1] == 59
    assert limits == sorted(limits)
