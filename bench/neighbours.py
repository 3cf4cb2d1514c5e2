"""What rules about other pods add to a decision, and how that depends on the size of the cluster.

Pods of many apps want the same share of a card and state a rule about the pods of their own app: none, anti-affinity by
node, spread over zones, or the same as wishes.  A decision is here to read the pod, to place it and to book it,
counters included.  Four pods a node run; for each new pod the oldest leaves.  Sorts and sizes take turns in several
rounds; the best of them counts, in CPU time.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import click
import msgspec

from bench import load
from bench.printed import say, show, table
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.placement import Placement
from subak.policy.decider import Decider

Json = dict[str, Any]

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ZONES = 10
LIMITS = {"volcano.sh/gpu-memory": load.MIB_PER_CARD // 8, "cpu": "1"}
PODS_PER_NODE = 4


def plain(app: Json) -> Json:
    """No rule."""
    return {}


def apart(app: Json) -> Json:
    """No two pods of an app on one node."""
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(app, HOSTNAME)]}}}


def spread(app: Json) -> Json:
    """As many pods of an app in every zone."""
    return {"topologySpreadConstraints": [_constraint(app, "DoNotSchedule")]}


def both(app: Json) -> Json:
    """Anti-affinity and spread."""
    return {**apart(app), **spread(app)}


def wishes(app: Json) -> Json:
    """The same, if possible."""
    wish = [{"weight": 100, "podAffinityTerm": _term(app, HOSTNAME)}]
    return {
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}},
        "topologySpreadConstraints": [_constraint(app, "ScheduleAnyway")],
    }


SORTS = (plain, apart, spread, both, wishes)


def _term(app: Json, key: str) -> Json:
    return {"labelSelector": {"matchLabels": app}, "topologyKey": key}


def _constraint(app: Json, unsatisfiable: str) -> Json:
    selector = {"matchLabels": app}
    return {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": unsatisfiable, "labelSelector": selector}


@dataclass
class Town:
    """A cluster whose pods all state the same sort of rule."""

    size: int
    apps: list[Json]
    decider: Decider
    running: deque[str] = field(default_factory=deque)
    numbers: count[int] = field(default_factory=count)
    best: float = float("inf")

    @classmethod
    def of(cls, size: int, apps: int, sort: Any) -> Town:
        """A cluster with as many pods as it keeps."""
        decider = Decider(Interpreter())
        labels = [{HOSTNAME: f"node-{number:05d}", ZONE: f"zone-{number // 10 % ZONES}"} for number in range(size)]
        nodes = load.nodes(size, decider.interpreter)
        decider.snapshot.put(replace(node, labels=label) for node, label in zip(nodes, labels, strict=True))
        labelled = [{"app": f"app-{number}"} for number in range(apps)]
        town = cls(size, [{"labels": each, "spec": sort(each)} for each in labelled], decider)
        for _ in range(PODS_PER_NODE * size):
            town.decide()
        return town

    def turn(self, decisions: int) -> None:
        """So many pods come, and as many leave."""
        began = time.process_time()
        for _ in range(decisions):
            self.decide()
            self.decider.snapshot.forget(self.running.popleft())
        self.best = min(self.best, (time.process_time() - began) / decisions)

    def decide(self) -> None:
        """One pod comes and is placed."""
        number = next(self.numbers)
        app = self.apps[number % len(self.apps)]
        container = {"name": "c", "resources": {"limits": LIMITS}}
        metadata = {"name": f"pod-{number}", "namespace": "default", "labels": app["labels"]}
        content = {"metadata": metadata, "spec": {"containers": [container], **app["spec"]}}
        pod = msgspec.convert(content, manifest.Pod)
        request = self.decider.request(pod)
        placement = self.decider.decide("default", request)
        if not isinstance(placement, Placement):
            raise AssertionError(f"{pod.key} found no place: {self.decider.explain(pod)}")
        self.decider.assume(pod.key, pod, request, placement)
        self.running.append(pod.key)


@click.command()
@click.option("--sizes", default="500,5000", show_default=True, help="Numbers of nodes, of 8 cards each.")
@click.option("--apps", default=100, show_default=True, help="Apps, each with a rule about its own pods.")
@click.option("--rounds", default=4, show_default=True)
@click.option("--decisions", default=500, show_default=True, help="Decisions of a round.")
@click.option("--write", is_flag=True, help="Put the table into docs/benchmarks.md.")
def main(sizes: str, apps: int, rounds: int, decisions: int, write: bool) -> None:
    """Measure what rules about other pods add to a decision."""
    every = [int(each) for each in sizes.split(",")]
    towns: dict[tuple[str, int], Town] = {}
    for size in every:
        for sort in SORTS:
            say(f"{size:,} nodes, {sort.__name__}")
            towns[sort.__name__, size] = Town.of(size, apps, sort)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for town in towns.values():
            town.turn(decisions)
    headings = ["rule", *[f"µs at {size:,} nodes" for size in every], "last to first"]
    rows = []
    for sort in SORTS:
        costs = [towns[sort.__name__, size].best for size in every]
        rows.append([sort.__name__, *[f"{each * 1e6:,.0f}" for each in costs], f"{costs[-1] / costs[0]:.2f}"])
    show("neighbours", [table(headings, rows)], write)
