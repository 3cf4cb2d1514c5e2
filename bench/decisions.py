"""Decisions per second on one core, and how they depend on the size of the cluster.

A decision is `place` and `assume` for a pod that has been read: choose node and cards, and book them.  The load is
mixed (`bench.load`): 200 shapes of all dialects.  The clusters are filled first; then for each new pod the oldest
leaves, so they stay equally full.  A refusal is measured with its explanation, for pods that no card can hold.  Sizes
take turns in several rounds, because machines are noisy; CPU time of the process counts.  At the end the ledger is
checked.  The slow reference of the tests decides the same pods on the smallest size.
"""

from __future__ import annotations

import statistics
import time
from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from pathlib import Path

import click

from bench import load
from bench.printed import say, show, table
from bench.samples import Samples, summary
from subak.dialects.interpreter import Interpreter
from subak.model.request import Request
from subak.policy.explain import explain
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.policy.reference import Reference

SHAPES = 200
SMALLEST = 0.02
REFERENCE_DECISIONS = 40
REFUSALS = 4
"""Refusals in each round."""

OUT = Path(__file__).parent / "out"


@dataclass
class Cluster:
    """A cluster in use, and the measurements on it."""

    size: int
    snapshot: Snapshot
    arrivals: cycle[Request]
    running: deque[str] = field(default_factory=deque)
    numbers: count[int] = field(default_factory=count)
    left: int = 0
    rates: list[float] = field(default_factory=list)
    decisions: array[float] = field(default_factory=lambda: array("d"))
    refusals: array[float] = field(default_factory=lambda: array("d"))

    def fill(self, pods: int) -> None:
        """Place pods until so many run."""
        while len(self.running) < pods:
            self._decide(next(self.arrivals))

    def turn(self, decisions: int) -> None:
        """Decide so many pods; for each new one the oldest leaves."""
        began = time.process_time()
        for request in islice(self.arrivals, decisions):
            start = time.process_time()
            placed = self._decide(request)
            if placed:
                self.snapshot.forget(self.running.popleft())
                self.left += 1
            (self.decisions if placed else self.refusals).append(time.process_time() - start)
        self.rates.append(decisions / (time.process_time() - began))

    def refuse(self, requests: list[Request]) -> None:
        """Refuse pods, with the reason in words."""
        for request in requests:
            start = time.process_time()
            if self._decide(request):
                raise AssertionError(f"{request} fits on no card, and was placed")
            self.refusals.append(time.process_time() - start)

    def clear(self) -> None:
        """Forget the measurements; the cluster stays as it is."""
        self.left = 0
        self.rates.clear()
        del self.decisions[:], self.refusals[:]

    def _decide(self, request: Request) -> bool:
        placement = place(self.snapshot, request)
        if placement is None:
            str(explain(self.snapshot, request))
            return False
        key = f"pod-{next(self.numbers)}"
        self.snapshot.assume(key, placement, request.needs.resources)
        self.running.append(key)
        return True

    def check(self, pods: int) -> None:
        """Raise unless the ledger holds exactly the running pods, and no card holds more than it can."""
        held = self.snapshot.bookings.keys()
        if held != set(self.running) or len(held) != pods:
            raise AssertionError(f"{len(held):,} pods hold cards, {len(self.running):,} run, {pods:,} should")
        for node in self.snapshot:
            for card in self.snapshot.cards(node.name):
                if min(card.memory_free, card.cores_free) < 0:
                    raise AssertionError(f"card {card.device.id} of {node.name} is overcommitted")


@click.command()
@click.option("--sizes", default="500,5000,50000", show_default=True, help="Numbers of nodes, of 8 cards each.")
@click.option("--pods-per-node", default=4, show_default=True, help="Pods that run.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--decisions", default=4_000, show_default=True, help="Decisions of a round.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=OUT, help="Where the plot goes.")
@click.option("--write", is_flag=True, help="Put the table into docs/benchmarks.md.")
def main(sizes: str, pods_per_node: int, rounds: int, decisions: int, out: Path, write: bool) -> None:
    """Measure decisions per second on one core, for clusters of several sizes."""
    interpreter = Interpreter()
    among = load.shapes(SHAPES, 1, SMALLEST)
    pods = list(islice(load.pods(among, 1), decisions * 2))
    began = time.process_time()
    requests = [interpreter.request(interpreter.admit(pod)) for pod in pods]
    reading = len(requests) / (time.process_time() - began)
    clusters = []
    for size in (int(each) for each in sizes.split(",")):
        say(f"{size:,} nodes x {load.CARDS} cards, {size * pods_per_node:,} pods")
        clusters.append(Cluster(size, Snapshot(load.nodes(size, interpreter)), cycle(requests)))
        clusters[-1].fill(size * pods_per_node)
        clusters[-1].turn(decisions)
        clusters[-1].clear()
    too_large = [load.request(shape, interpreter) for shape in load.too_large(rounds * REFUSALS)]
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for cluster in clusters:
            cluster.turn(decisions)
            cluster.refuse(too_large[number * REFUSALS : (number + 1) * REFUSALS])
    for cluster in clusters:
        cluster.check(cluster.size * pods_per_node)
    slow = reference_rate(clusters[0].size, requests, interpreter)
    faster = max(clusters[0].rates) / slow
    compared = f"Slow reference, {clusters[0].size:,} nodes: {slow:,.1f}/s; columns are {faster:,.0f} times faster."
    show("decisions", (report(clusters), f"{compared}\nReading and admitting a pod: {reading:,.0f}/s."), write)
    plot(clusters, slow, out / "decisions.png")


def report(clusters: list[Cluster]) -> str:
    """The table."""
    headings = ["nodes", "pods", "left", "best/s", "median/s", "p50 µs", "p99 µs", "worst µs"]
    headings += ["against the first", "refused", "refusal p50 ms", "worst ms"]
    rows = []
    base = max(clusters[0].rates)
    for cluster in clusters:
        costs, refusals = summary(cluster.decisions), summary(cluster.refusals)
        rows.append(
            [
                *(f"{cluster.size:,}", f"{len(cluster.snapshot.bookings):,}", f"{cluster.left:,}"),
                *(f"{max(cluster.rates):,.0f}", f"{statistics.median(cluster.rates):,.0f}"),
                *(f"{each * 1e6:,.0f}" for each in (costs.p50, costs.p99, costs.worst)),
                *(f"{base / max(cluster.rates):.2f}", f"{refusals.count:,}", *_milliseconds(refusals)),
            ]
        )
    return table(headings, rows)


def _milliseconds(samples: Samples) -> tuple[str, str]:
    return f"{samples.p50 * 1e3:,.2f}", f"{samples.worst * 1e3:,.2f}"


def reference_rate(size: int, requests: list[Request], interpreter: Interpreter) -> float:
    """Decisions per second of the slow reference."""
    reference = Reference({node.name: node for node in load.nodes(size, interpreter)})
    start = time.process_time()
    for number, request in enumerate(requests[:REFERENCE_DECISIONS]):
        placement = reference.place(request)
        if placement is not None:
            reference.pods[f"pod-{number}"] = (placement, request.needs.resources)
    return REFERENCE_DECISIONS / (time.process_time() - start)


def plot(clusters: list[Cluster], slow: float, file: Path) -> None:
    """Plot decisions per second over the size of the cluster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot([c.size for c in clusters], [max(c.rates) for c in clusters], marker="o", label="columns")
    axes.plot([clusters[0].size], [slow], marker="x", linestyle="", label="slow reference")
    axes.axhline(10_000, color="grey", linewidth=0.8, linestyle="--", label="goal at 5,000 nodes")
    axes.set(xscale="log", yscale="log", xlabel="nodes (8 cards each)", ylabel="decisions per second, one core")
    axes.legend()
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    say(f"plot: {file}")
