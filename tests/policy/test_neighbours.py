"""Counters that events keep say what a slow recount says, after any history of pods, nodes and namespaces."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.placement import Placement
from subak.policy import registry
from subak.policy.decider import Decider
from tests.e2e import worlds
from tests.policy.neighbours import Neighbours
from tests.support.fuzz import histories


class History:
    """A decider and the slow neighbours, to which the same happens."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.decider = Decider(Interpreter())
        self.slow = Neighbours()
        self.numbers = 0
        if chance.random() < 0.5:  # the counters see everything as it happens, or all at once in the end
            self.decider.request(self.pod())

    def node(self) -> None:
        """A node comes or changes."""
        made = worlds.node(self.chance, self.chance.randrange(5))
        node, _ = self.decider.interpreter.node(msgspec.convert(made, manifest.Node))
        self.decider.snapshot.put([node])
        self.slow.nodes[node.name] = node

    def node_gone(self) -> None:
        if self.slow.nodes:
            name = self.chance.choice(sorted(self.slow.nodes))
            self.decider.snapshot.remove(name)
            del self.slow.nodes[name]

    def namespace(self) -> None:
        name = self.chance.choice(list(worlds.NAMESPACES))
        labels = self.chance.choice(list(worlds.NAMESPACES.values()))
        if self.chance.random() < 0.2:
            self.decider.snapshot.lose_namespace(name)
            self.slow.namespaces.pop(name, None)
        else:
            self.decider.snapshot.see_namespace(name, labels)
            self.slow.namespaces[name] = labels

    def pod(self) -> manifest.Pod:
        self.numbers += 1
        made = worlds.pod(self.chance, f"p{self.numbers}")
        made["spec"].pop("schedulingGates", None)
        return msgspec.convert(made, manifest.Pod)

    def came(self) -> None:
        """A pod comes to a node, which may not be known."""
        pod, node = self.pod(), f"n{self.chance.randrange(5)}"
        self.decider.snapshot.restore(pod.key, Placement(node), (), None, pod)
        self.slow.pods[pod.key] = pod, node

    def left(self) -> None:
        if self.slow.pods:
            key = self.chance.choice(sorted(self.slow.pods))
            self.decider.snapshot.forget(key)
            del self.slow.pods[key]

    def relabelled(self) -> None:
        if self.slow.pods:
            key = self.chance.choice(sorted(self.slow.pods))
            pod, node = self.slow.pods[key]
            labels = {"app": self.chance.choice(["web", "db"])}
            ending = "2026-01-01T00:00:00Z" if self.chance.random() < 0.5 else None
            metadata = msgspec.structs.replace(pod.metadata, labels=labels, deletion_timestamp=ending)
            pod = msgspec.structs.replace(pod, metadata=metadata)
            self.decider.snapshot.relabel(key, pod)
            self.slow.pods[key] = pod, node

    def tried(self) -> None:
        """Pods come and leave, and that is rolled back."""
        before = dict(self.slow.pods)
        with self.decider.snapshot.transaction():
            for _ in range(3):
                self.chance.choice([self.came, self.left])()
            self.asked()
        self.slow.pods = before

    def asked(self) -> None:
        """Another pod asks about all nodes, in columns and node by node."""
        pod, snapshot = self.pod(), self.decider.snapshot
        request = self.decider.request(pod)
        possible = []
        for pool in snapshot.pools:
            for at in pool:
                node = pool.nodes[at]
                verdicts = [each.verdicts(pool, request) for each in registry.across(snapshot, request)]
                said = [each.texts[each.codes[at]] for each in verdicts]
                assert said == [each.refuse(node, request) for each in registry.across(snapshot, request)]
                assert self.slow.takes(pod, request.needs, node) == all(each is None for each in said), (
                    pod,
                    node,
                    said,
                )
                if not any(each.refuse(node, request) for each in registry.filters(snapshot, request)):
                    possible.append(node)
        self.compare_points(pod, request, possible)

    def compare_points(self, pod: manifest.Pod, request: Any, possible: list[Any]) -> None:
        snapshot = self.decider.snapshot
        names = {node.name for node in possible}
        among = {
            pool: np.array([at < pool.size and pool.nodes[at].name in names for at in range(pool.room)])
            for pool in snapshot.pools
        }
        given = [(each.weight, each.points(request, among)) for each in registry.preferences(snapshot, request)]
        wanted = self.slow.points(pod, request.needs, possible)
        for pool in snapshot.pools:
            for at in pool:
                if pool.nodes[at].name in names:
                    total = sum(weight * int(points[pool][at]) for weight, points in given)
                    assert total == wanted[pool.nodes[at].name], (pod, pool.nodes[at])


STEPS = (
    *[History.node, History.came] * 3,
    *[History.node_gone, History.namespace, History.left, History.relabelled, History.tried, History.asked],
)


@histories(quick=30, ci=1_500)
@given(st.integers(0, 2**32), st.integers(5, 40))
def test_counters_say_what_a_recount_says_after_any_history(seed: int, steps: int) -> None:
    history = History(random.Random(seed))
    for _ in range(steps):
        history.chance.choice(STEPS)(history)
    history.asked()
