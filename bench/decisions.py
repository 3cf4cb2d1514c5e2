"""Decisions per second on one core, and how they depend on the size of the cluster.

A decision is `place` and `assume` for a pod that has been read: which node, which cards, booked.  The load is mixed
(`bench.load`): 19 shapes of all dialects.  Pods leave again, oldest first, so that the cluster stays in use without
filling up.  Sizes take turns in several rounds, because machines are noisy; CPU time of the process counts, and the
best round is shown beside the median.  The slow reference of the tests decides the same pods on the smallest size.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from bench import load
from subak.dialects.interpreter import Interpreter
from subak.model.request import Request
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.policy.reference import Reference

SIZES = (500, 5_000, 50_000)
ROUNDS = 5
DECISIONS = 4_000
SHAPES = 200
REFERENCE_DECISIONS = 40
PODS_PER_NODE = 12
OUT = Path("bench/out")


@dataclass
class Cluster:
    """A cluster in use, and what was measured on it."""

    size: int
    snapshot: Snapshot
    arrivals: cycle[Request]
    running: deque[str] = field(default_factory=deque)
    number: int = 0
    waiting: int = 0
    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def decide(self, count: int) -> float:
        """Decide so many pods; seconds of CPU."""
        start = time.process_time()
        for request in islice(self.arrivals, count):
            began = time.perf_counter()
            placement = place(self.snapshot, request)
            if placement is None:
                self.waiting += 1
            else:
                self.number += 1
                key = f"pod-{self.number}"
                self.snapshot.assume(key, placement, request.needs.resources)
                self.running.append(key)
            self.latencies.append(time.perf_counter() - began)
            if len(self.running) > self.size * PODS_PER_NODE:
                self.snapshot.forget(self.running.popleft())
        return time.process_time() - start


def main(options: Sequence[str] = ()) -> None:
    """Measure, print a table, write a plot."""
    from rich.console import Console
    from rich.table import Table

    interpreter = Interpreter()
    console = Console()
    say(console.print, f"reading {DECISIONS * 2:,} pods")
    start = time.process_time()
    among = load.shapes(SHAPES, 1, smallest=0.02)
    requests = [interpreter.request(interpreter.admit(pod)) for pod in islice(load.pods(among, 1), DECISIONS * 2)]
    reading = len(requests) / (time.process_time() - start)
    clusters = []
    for size in SIZES:
        say(console.print, f"building {size:,} nodes x {load.CARDS} cards")
        clusters.append(Cluster(size, Snapshot(load.nodes(size, interpreter)), cycle(requests)))
        clusters[-1].decide(DECISIONS)  # rows of scores are made on first use
        clusters[-1].latencies.clear()
    for number in range(ROUNDS):
        say(console.print, f"round {number + 1} of {ROUNDS}")
        for cluster in clusters:
            cluster.rates.append(DECISIONS / cluster.decide(DECISIONS))
    slow = reference_rate(requests, interpreter)
    table = Table(title="Decisions per second, one core, mixed load")
    for heading in (
        "nodes",
        "cards",
        "best/s",
        "median/s",
        "us per decision",
        "p99 us",
        "against 5,000 nodes",
        "waiting",
    ):
        table.add_column(heading, justify="right")
    base = best(clusters[1])
    for cluster in clusters:
        rate = best(cluster)
        p99 = statistics.quantiles(cluster.latencies, n=100)[98] * 1e6
        table.add_row(
            *(f"{cluster.size:,}", f"{cluster.size * load.CARDS:,}", f"{rate:,.0f}"),
            *(f"{statistics.median(cluster.rates):,.0f}", f"{1e6 / rate:.0f}", f"{p99:.0f}"),
            *(f"{base / rate:.2f} x", f"{cluster.waiting:,}"),
        )
    console.print(table)
    console.print(
        f"slow reference, {SIZES[0]:,} nodes: {slow:,.1f}/s; columns are {best(clusters[0]) / slow:,.0f} x faster"
    )
    console.print(f"reading and admitting a pod: {reading:,.0f}/s")
    plot(clusters, slow)
    console.print(f"plot: {OUT / 'decisions.png'}")


def say(show: Callable[[str], None], text: str) -> None:
    """Progress, for people only."""
    if sys.stdout.isatty():
        show(text)


def best(cluster: Cluster) -> float:
    """The best round: what the code can do when nothing disturbs it."""
    return max(cluster.rates)


def reference_rate(requests: list[Request], interpreter: Interpreter) -> float:
    """Decisions per second of the slow reference on the smallest size."""
    reference = Reference({node.name: node for node in load.nodes(SIZES[0], interpreter)})
    start = time.process_time()
    for number, request in enumerate(requests[:REFERENCE_DECISIONS]):
        placement = reference.place(request)
        if placement is not None:
            reference.pods[f"pod-{number}"] = (placement, request.needs.resources)
    return REFERENCE_DECISIONS / (time.process_time() - start)


def plot(clusters: list[Cluster], slow: float) -> None:
    """Decisions per second over the size of the cluster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot([c.size for c in clusters], [best(c) for c in clusters], marker="o", label="columns")
    axes.plot([SIZES[0]], [slow], marker="x", linestyle="", label="slow reference")
    axes.axhline(10_000, color="grey", linewidth=0.8, linestyle="--", label="goal at 5,000 nodes")
    axes.set(xscale="log", yscale="log", xlabel="nodes (8 cards each)", ylabel="decisions per second, one core")
    axes.legend()
    figure.tight_layout()
    OUT.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUT / "decisions.png", dpi=120)
