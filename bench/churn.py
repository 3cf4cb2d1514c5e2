"""A scheduler core on a full cluster: the CPU time of every single event.

The cluster has 5,000 nodes of 8 cards, some 40,000 pods run, 15 % as many wait, and they ask in 2,000 different ways.
It measures a restart; pods that come (placed or refused, with the explanation) and go; nodes and devices that change;
how a start grows with the number of nodes; nodes that join while pods wait; arrivals with few and with many shapes.
After the churn it checks the core's ledger: no pod is lost, no card is overcommitted, every waiting pod has a report.

`--against DIR` also measures the code of another checkout (`git worktree add DIR COMMIT`), with the same program and in
turns, because machines are noisy.  A slow side sees fewer events in its time; the table says how many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from bench import tables
from bench.driver import DEPARTURE, REFUSED
from bench.printed import say, show
from bench.samples import exceeded
from bench.side import Answer, Result, Size

ROOT = Path(__file__).parent.parent
OUT = ROOT / "bench" / "out"


class Process:
    """A side: a process that measures one checkout."""

    def __init__(self, name: str, checkout: Path, size: Size) -> None:
        self.name = name
        self.result: Result | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.side"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(checkout / "src"), str(ROOT)))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(msgspec.json.encode(size))

    def turn(self) -> None:
        """Let it do a part of its work."""
        self._send(b"go")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name}: the process ended with code {self._process.wait()}, see above")
        answer = msgspec.json.decode(line, type=Answer)
        self.result = answer.result
        if answer.done:
            say(f"{self.name}: {answer.done}")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


def measure(checkouts: dict[str, Path], size: Size) -> dict[str, Result]:
    """Run the sides in turns; gives what each of them measured."""
    processes = [Process(name, checkout, size) for name, checkout in checkouts.items()]
    try:
        while any(process.result is None for process in processes):
            for process in processes:
                if process.result is None:
                    process.turn()
    finally:
        for process in processes:
            process.end()
    return {process.name: process.result for process in processes if process.result is not None}


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Nodes, of 8 cards each, filled with pods.")
@click.option("--waiting", default=0.15, show_default=True, help="Pods that wait, as a part of those that run.")
@click.option("--shapes", default=2_000, show_default=True, help="Different requests.")
@click.option("--rate", default=2_000.0, show_default=True, help="Events offered per second.")
@click.option("--seconds", default=60.0, show_default=True, help="CPU seconds of pods coming and going, per side.")
@click.option(
    "--fill-seconds",
    default=400.0,
    show_default=True,
    help="Most CPU seconds until enough pods wait, and each kind was seen.",
)
@click.option("--bound", default=60.0, show_default=True, help="Seconds in which everybody must have been told why.")
@click.option("--growth", default="1250,2500,5000,10000", show_default=True, help="Numbers of nodes to start with.")
@click.option("--few", default=20, show_default=True, help="Few shapes.")
@click.option("--many", default=2_300, show_default=True, help="Many shapes.")
@click.option("--seed", default=1, show_default=True)
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=OUT, help="Where the plot goes.")
@click.option("--write", is_flag=True, help="Put the tables into docs/benchmarks.md.")
def main(against: Path | None, growth: str, out: Path, write: bool, **numbers: Any) -> None:
    """Measure a scheduler core at work on a full cluster: the CPU time of every single event."""
    size = Size(growth=tuple(int(each) for each in growth.split(",") if each), **numbers)
    checkouts = {"new": ROOT} if against is None else {"old": against.resolve(), "new": ROOT}
    results = measure(checkouts, size)
    parts = tables.events(results), tables.alone(results), tables.figures(results, size), tables.ledgers(results)
    show("churn", parts, write)
    plot(results, out / "churn.png")


def plot(results: dict[str, Result], file: Path) -> None:
    """Plot for each cost the part of events that exceed it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, result), style in zip(results.items(), (":", "-") if len(results) > 1 else ("-",), strict=True):
        for kind, colour in ((DEPARTURE, "C0"), (REFUSED, "C1")):
            tail = result.kinds[kind].tail if kind in result.kinds else ()
            parts = [exceeded(point) for point in range(len(tail))]
            axes.plot([cost * 1e3 for cost in tail], parts, style, color=colour, label=f"{kind} ({name})")
    axes.axvline(5, color="grey", linewidth=0.8, linestyle="--", label="goal at 0.001")
    axes.set(xscale="log", yscale="log", xlabel="CPU milliseconds of an event", ylabel="part of events that cost more")
    axes.legend()
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    say(f"plot: {file}")
