"""How long containers take to start, as root and as an ordinary user: CPU time, and time until their program runs.

`--against DIR` measures the code of another checkout too.  Users and checkouts take turns, because machines are noisy;
CPU time says more than wall time where others use the processors too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path
from statistics import median

import click
import msgspec

from bench.printed import say, show, table
from bench.samples import summary
from bench.starting import Turn
from tests.support.nobody import NOBODY, as_nobody, possible

ROOT = Path(__file__).parents[1]


def users() -> list[str]:
    """Who starts containers: root and nobody, or whoever we are."""
    if os.geteuid() == 0:
        return ["root", "nobody"] if possible() else ["root"]
    return ["this user"]


def turn(user: str, checkout: Path, count: int) -> Turn:
    """Start some containers with the code of a checkout."""
    command = [sys.executable, "-m", "bench.starting", str(count)]
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": home}
        env["PYTHONPATH"] = os.pathsep.join((str(checkout / "src"), str(ROOT)))
        if user == "nobody":
            os.chown(home, NOBODY, NOBODY)
            command = [*as_nobody(*command, visible=[checkout])]
        ran = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(ran.stdout, type=Turn)


@click.command()
@click.option("--count", default=10, show_default=True, help="Containers in a turn.")
@click.option("--rounds", default=10, show_default=True, help="Turns of each user and checkout.")
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Another checkout.")
@click.option("--write", is_flag=True, help="Put the table into docs/benchmarks.md.")
def main(count: int, rounds: int, against: Path | None, write: bool) -> None:
    """Measure the start of containers."""
    checkouts = {"new": ROOT} if against is None else {"old": against.resolve(), "new": ROOT}
    turns: dict[tuple[str, str], list[Turn]] = {(user, code): [] for user in users() for code in checkouts}
    for number in range(rounds):
        for (user, code), found in turns.items():
            found.append(turn(user, checkouts[code], count))
        say(f"round {number + 1} of {rounds}")
    rows = [[user, code, f"{count * rounds:,}", *_figures(found, count)] for (user, code), found in turns.items()]
    headings = ["user", "code", "containers", "CPU ms, median of turns", "least", "until it runs, p50 ms", "p99 ms"]
    show("starts", [table(headings, rows)], write)


def _figures(turns: list[Turn], count: int) -> list[str]:
    cpu = [each.cpu / count * 1e3 for each in turns]
    waits = summary(array("d", [wait for each in turns for wait in each.waits]))
    return [f"{figure:,.1f}" for figure in (median(cpu), min(cpu), waits.p50 * 1e3, waits.p99 * 1e3)]
