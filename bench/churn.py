"""A scheduler core at work on a full cluster: what every single event costs, in CPU time.

The cluster has 5,000 nodes of 8 cards, about 41,000 pods run, 15 % as many wait, and they ask in 2,000 different ways.
Measured are a restart, pods that come (placed or refused, the explanation included) and go, nodes and devices that
change; then how start-up grows with the number of nodes, and the cost of an arrival with few and with many shapes.
At the end the core's own ledger is read: nobody is lost, no card is overcommitted, whoever waits was told why.

`--against DIR` measures the code of another checkout (`git worktree add DIR COMMIT`) as well, by the same program, the
two in turns, because machines are noisy.  A side that is slow sees fewer events; the table says how many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from bench.side import INSIDE, OUTSIDE, Size

ROOT = Path(__file__).parent.parent
OUT = ROOT / "bench" / "out"
Result = dict[str, Any]


class Side:
    """A process that measures one checkout."""

    def __init__(self, name: str, checkout: Path, size: Size) -> None:
        self.name = name
        paths = os.pathsep.join((str(checkout / "src"), str(ROOT)))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.side"],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._write(msgspec.json.encode(size))

    def step(self) -> Result:
        """One turn."""
        self._write(b"go")
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name}: ended with exit code {self._process.wait()}")
        answer: Result = msgspec.json.decode(line)
        return answer

    def end(self) -> None:
        """Let the process end."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


def measure(checkouts: dict[str, Path], size: Size) -> dict[str, Result]:
    """What each side measured, the sides in turns."""
    sides = [Side(name, checkout, size) for name, checkout in checkouts.items()]
    results: dict[str, Result] = {}
    try:
        while len(results) < len(sides):
            for side in sides:
                if side.name not in results:
                    answer = side.step()
                    if "result" in answer:
                        results[side.name] = answer["result"]
                    else:
                        print(f"{side.name}: {answer['done']}", file=sys.stderr)
    finally:
        for side in sides:
            side.end()
    return {name: results[name] for name in checkouts}


@click.command()
@click.option("--nodes", default=5_000, show_default=True, help="Nodes, of 8 cards each.")
@click.option("--waiting", default=0.15, show_default=True, help="Pods that wait, as a part of those that run.")
@click.option("--shapes", default=2_000, show_default=True, help="Different requests.")
@click.option("--rate", default=2_000.0, show_default=True, help="Events offered per second.")
@click.option("--seconds", default=60.0, show_default=True, help="CPU seconds of pods coming and going, per side.")
@click.option("--fill-seconds", default=400.0, show_default=True, help="Most CPU seconds until enough pods wait.")
@click.option("--bound", default=60.0, show_default=True, help="Seconds in which everybody must have been told why.")
@click.option("--growth", default="1250,2500,5000,10000", show_default=True, help="Numbers of nodes to start with.")
@click.option("--few", default=20, show_default=True, help="Few shapes.")
@click.option("--many", default=2_300, show_default=True, help="Many shapes.")
@click.option("--seed", default=1, show_default=True)
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
def main(against: Path | None, growth: str, **numbers: Any) -> None:
    """A scheduler core at work on a full cluster: what every single event costs, in CPU time."""
    size = Size(growth=tuple(int(each) for each in growth.split(",") if each), **numbers)
    checkouts = {"new": ROOT} if against is None else {"old": against.resolve(), "new": ROOT}
    results = measure(checkouts, size)
    for text in report(results):
        print(text)


def report(results: dict[str, Result]) -> list[str]:
    """Tables in Markdown."""
    lines: list[str] = []
    for name, result in results.items():
        start, queue, churn, audit = (result[part] for part in ("start", "queue", "churn", "audit"))
        lines += [
            f"\n**{name}**: start with {start['running']:,} pods: nodes {start['nodes']:.2f} s, pods {start['pods']:.2f} s; "
            f"{queue['waiting']:,} of {queue['goal']:,} wait after {queue['cpu']:.1f} s; {churn['events']:,} events in "
            f"{churn['cpu']:.1f} s: {churn['events'] / churn['cpu']:,.0f} events/s\n",
            "| event | seen | p50 ms | p99 ms | p99.9 ms | worst ms | share of CPU |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        total = sum(each["total"] for each in churn["kinds"].values())
        for kind, row in [
            ("any from outside", churn["all"]),
            *((k, churn["kinds"].get(k)) for k in (*OUTSIDE, *INSIDE)),
        ]:
            if row:
                ranks = " | ".join(f"{row[rank] * 1e3:,.2f}" for rank in ("p50", "p99", "p999", "worst"))
                lines.append(f"| {kind} | {row['count']:,} | {ranks} | {row['total'] / total:.0%} |")
        lines += [
            f"\n{churn['counts']}; longest silence {churn['silence']:.2f} s; settled after {churn['settled']:.1f} s; "
            f"{churn['collections']['count']} collections, worst {churn['collections']['worst'] * 1e3:.1f} ms",
            f"\nledger: {audit}",
            f"\ngrowth: { ({int(n): round(s, 2) for n, s in result['growth'].items()}) }",
        ]
        for shapes, kinds in result["shapes"].items():
            row = kinds["arrival, placed"]
            mean = row["total"] / row["count"]
            lines.append(
                f"{shapes} shapes: {row['count']:,} arrivals, mean {mean * 1e3:.3f} ms, p99 {row['p99'] * 1e3:.2f} ms"
            )
    return lines
