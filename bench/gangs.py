"""Gangs in the scheduler's core: how long a cycle takes, and how many pods get their places in a second.

100 gangs of 50 pods come to a cluster of 5,000 nodes with 8 cards each, and get their places; then the same pods come
one by one, as pods of the direct line.  What counts is what was really bound: every binding is stored and comes back
as an event, as from a watch.  Then cycles with nothing to do are measured, with all gangs running, and beside as many
gangs that fit nowhere; and cycles after an event that helps nobody.  Sides take turns in several rounds, because
machines are noisy; CPU time of the process counts.  At the end the ledger is checked: every gang is bound as a whole,
and no card holds more than it can.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import click
import msgspec

from bench import load
from bench.printed import say, show, table
from bench.samples import Samples, summary
from subak.model import manifest
from subak.model.group import Group, Words
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, GroupSeen, Instruction, NodeSeen, PodGone, PodSeen

PER_CYCLE = 16
"""As in the service."""

GROUP = "scheduling.k8s.io/group-name"
FITS = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 20_000, "nvidia.com/gpucores": 20}
TOO_LARGE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2 * load.MIB_PER_CARD}


@dataclass
class Side:
    """A core, what it was told, and the measurements."""

    core: Core = field(default_factory=Core)
    pods: dict[str, manifest.Pod] = field(default_factory=dict)
    now: float = 1.0
    cycles: array[float] = field(default_factory=lambda: array("d"))
    bound: int = 0
    seconds: float = 0.0
    last: float = 0.0

    @property
    def rate(self) -> float:
        """Pods that were bound in a second."""
        return self.bound / self.seconds

    def arrive(self, pods: Iterable[manifest.Pod], groups: Iterable[Group] = ()) -> None:
        """These come, and are handled until nothing is left to do."""
        began = time.process_time()
        for group in groups:
            self.core.handle(GroupSeen(group))
        for pod in pods:
            self.pods[pod.key] = pod
            self.core.handle(PodSeen(pod))
        self.seconds += time.process_time() - began
        while True:
            instructions = self.cycle()
            self.cycles.append(self.last)
            began = time.process_time()
            self._carry_out(instructions)
            self.seconds += time.process_time() - began + self.last
            wakes_at = self.core.wakes_at()
            if not instructions and wakes_at is None:
                return
            self.now = max(self.now, wakes_at or 0.0)

    def cycle(self) -> list[Instruction]:
        """One cycle; `last` is what it cost."""
        self.now += 0.001
        began = time.process_time()
        instructions = self.core.cycle(self.now, PER_CYCLE)
        self.last = time.process_time() - began
        return instructions

    def _carry_out(self, instructions: Iterable[Instruction]) -> None:
        """Store bindings, and let them come back."""
        for each in instructions:
            if isinstance(each, Bind):
                pod = self.pods[each.key]
                metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **each.annotations})
                spec = msgspec.structs.replace(pod.spec, node_name=each.node)
                pod = self.pods[each.key] = msgspec.structs.replace(pod, metadata=metadata, spec=spec)
                self.core.handle(PodSeen(pod))
                self.bound += 1

    def check(self, gangs: int, members: int) -> None:
        """Raise unless every gang is bound as a whole, and no card holds more than it can."""
        placed = [pod for pod in self.pods.values() if pod.spec.node_name]
        if len(placed) != gangs * members or self.bound != len(placed):
            raise AssertionError(f"{len(placed):,} of {gangs * members:,} pods have a node, {self.bound:,} were bound")
        for node in self.core.snapshot:
            for card in self.core.snapshot.cards(node.name):
                if min(card.memory_free, card.cores_free) < 0:
                    raise AssertionError(f"card {card.device.id} of {node.name} is overcommitted")


def member(name: str, gang: str, limits: dict[str, int]) -> manifest.Pod:
    """A pod of a gang, or of the direct line."""
    content = {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {GROUP: gang} if gang else {}},
        "spec": {
            "schedulerName": "volcano" if gang else "subak",
            "containers": [{"name": "main", "resources": {"limits": limits}}],
        },
    }
    return msgspec.convert(content, manifest.Pod)


def groups(prefix: str, gangs: int, members: int) -> list[Group]:
    """PodGroups of Volcano."""
    names = [f"{prefix}-{number}" for number in range(gangs)]
    return [Group(words=Words.VOLCANO, key=f"default/{name}", uid=name, min_member=members) for name in names]


def pods(prefix: str, gangs: int, members: int, limits: dict[str, int], grouped: bool = True) -> list[manifest.Pod]:
    """Their members, or as many pods of the direct line."""
    return [
        member(f"{prefix}-{gang}-{number}", f"{prefix}-{gang}" if grouped else "", limits)
        for gang in range(gangs)
        for number in range(members)
    ]


def idle(side: Side, times: int) -> array[float]:
    """What cycles with nothing to do cost."""
    costs = array("d")
    for _ in range(times):
        side.now += 1.0
        if side.cycle():
            raise AssertionError("there is nothing to do, and something was done")
        costs.append(side.last)
    return costs


def in_vain(side: Side, times: int) -> array[float]:
    """What it costs that a pod leaves and nobody who waits fits there: the event and the cycle."""
    costs = array("d")
    running = [key for key, pod in side.pods.items() if pod.spec.node_name and not pod.annotations.get(GROUP)]
    for key in running[:times]:
        side.now += 1.0
        began = time.process_time()
        side.core.handle(PodGone(key))
        side.cycle()
        costs.append(time.process_time() - began)
    return costs


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Nodes, of 8 cards each.")
@click.option("--gangs", default=100, show_default=True)
@click.option("--members", default=50, show_default=True, help="Pods of a gang, all of which must start together.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--write", is_flag=True, help="Put the table into docs/benchmarks.md.")
def main(nodes: int, gangs: int, members: int, rounds: int, write: bool) -> None:
    """Measure cycles and pods per second with gangs, beside the same pods in the direct line."""
    sizes = gangs, members
    together: list[Side] = []
    alone: list[Side] = []
    described = [load.node(number) for number in range(nodes)]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for sides, grouped in ((together, True), (alone, False)):
            side = Side()
            for node in described:
                side.core.handle(NodeSeen(node))
            side.core.cycle(0.0)
            side.arrive(pods("gang", *sizes, FITS, grouped), groups("gang", *sizes) if grouped else ())
            side.check(*sizes)
            sides.append(side)
    last = together[-1]
    running = idle(last, 200)
    last.arrive(pods("plain", 1, 200, FITS, grouped=False))
    last.arrive(pods("large", *sizes, TOO_LARGE), groups("large", *sizes))
    waiting, vain = idle(last, 200), in_vain(last, 200)
    if max(statistics.median(running), statistics.median(waiting)) > 0.005:
        say("a cycle with nothing to do takes more than 5 ms")
    show("gangs", (_rates(together, alone), _cycles(together, alone, running, waiting, vain)), write)


def _rates(together: list[Side], alone: list[Side]) -> str:
    rows = []
    for name, sides in (("in gangs", together), ("in the direct line", alone)):
        best = max(sides, key=lambda side: side.rate)
        rows.append([name, f"{best.bound:,}", f"{best.rate:,.0f}", f"{statistics.median(s.rate for s in sides):,.0f}"])
    ratio = statistics.median(side.rate for side in together) / statistics.median(side.rate for side in alone)
    rows.append(["gangs / line", "", "", f"{ratio:.2f}"])
    return table(["pods", "bound", "pods/s, best round", "pods/s, median"], rows)


def _cycles(
    together: list[Side], alone: list[Side], running: array[float], waiting: array[float], vain: array[float]
) -> str:
    kinds: dict[str, Samples] = {
        "gangs get their places": summary(array("d", [cost for side in together for cost in side.cycles])),
        "the direct line": summary(array("d", [cost for side in alone for cost in side.cycles])),
        "nothing to do, all run": summary(running),
        "nothing to do, as many gangs wait": summary(waiting),
        "a pod leaves, and nobody who waits fits there": summary(vain),
    }
    rows = [
        [name, f"{each.count:,}", *(f"{1e3 * cost:,.2f}" for cost in (each.p50, each.p99, each.worst))]
        for name, each in kinds.items()
    ]
    return table(["cycle", "seen", "p50 ms", "p99 ms", "worst ms"], rows)
