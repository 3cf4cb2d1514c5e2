"""The table that the programs of this directory write together, row by row.

Each row says what was tried, what was got, what the goal is and whether it is met.  It is printed at once and kept in
the file that SUBAK_TABLE names; `python3 table.py` prints the whole file as Markdown, with date, card and driver.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

VERDICTS = {True: "ok", False: "MISS", None: ""}
began = time.monotonic()
missed = 0


def row(what: str, asked: str, got: str, goal: str, good: bool | None) -> None:
    """Print a row and keep it; `good` is None where there is no goal."""
    global missed
    missed += good is False
    passed = time.monotonic() - began
    print(f"[{passed:5.0f} s] {what:38} {asked:12} {got:64} {goal:34} {VERDICTS[good]}", flush=True)
    if name := os.environ.get("SUBAK_TABLE"):
        with Path(name).open("a") as file:
            print(json.dumps([Path(sys.argv[0]).stem, what, asked, got, goal, VERDICTS[good]]), file=file)


def card() -> str:
    """The card, its driver and the date."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    return f"{datetime.date.today().isoformat()}, {name}, driver {driver}, {os.cpu_count()} CPUs"


def main() -> None:
    """The kept rows as Markdown."""
    rows = [json.loads(line) for line in Path(os.environ["SUBAK_TABLE"]).read_text().splitlines()]
    print(
        f"Measured {card()}. {sum(row[-1] == 'ok' for row in rows)} goals met, "
        f"{sum(row[-1] == 'MISS' for row in rows)} missed."
    )
    section = ""
    for program, *cells in rows:
        if program != section:
            section = program
            print(f"\n### {section}\n\n| what | limit | got | goal | |\n|---|---|---|---|---|")
        print("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")


if __name__ == "__main__":
    main()
