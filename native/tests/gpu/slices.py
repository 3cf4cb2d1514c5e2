"""`subak run` on a real card: a slice is a card of its own to the command in it.

    SUBAK="uv run subak" python3 native/tests/gpu/slices.py      (build libsubak and the tenant first)

Without SUBAK it is the `subak` of the PATH; where there is none the table says so.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import table
from table import row

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("SUBAK_BUILD", HERE.parent.parent / "build")).absolute()
SUBAK = shlex.split(os.environ.get("SUBAK", "subak"))
QUERY = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]


def output(command: list[str]) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return (ran.stdout or ran.stderr).strip()


class Spin:
    """A tenant that launches 2 ms kernels, with what it takes to start it."""

    def __init__(self, *before: str) -> None:
        command = [*before, str(BUILD / "gpu-tenant")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.process.stdout.readline()

    def begin(self, seconds: float) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"run spin 0.5 {seconds} {time.monotonic() + 0.1}\n")
        self.process.stdin.flush()

    def rate(self) -> float:
        assert self.process.stdout
        return float(json.loads(self.process.stdout.readline())["rate"])

    def end(self) -> None:
        self.process.communicate("", timeout=20)


def main() -> None:
    if shutil.which(SUBAK[0]) is None:
        row("subak run", "", f"{shlex.join(SUBAK)} is not there", "", None)
        return
    told = output([*SUBAK, "run", "--memory", "4Gi", "--", *QUERY])
    row("subak run --memory 4Gi -- nvidia-smi", "4096 MiB", told[-60:], "4096, 0", told.splitlines()[-1] == "4096, 0")
    free = Spin()
    free.begin(1.0)
    full = free.rate()
    slices = [(cores, Spin(*SUBAK, "run", "--memory", "4Gi", "--cores", str(cores), "--")) for cores in (30, 60)]
    for _, tenant in slices:
        tenant.begin(2.5)
    time.sleep(2.0)
    seen = output([*SUBAK, "top", "-o", "json"])
    shares = [tenant.rate() / full * 100 for _, tenant in slices]
    good = all(abs(share - cores) <= 2 for share, (cores, _) in zip(shares, slices, strict=True))
    row("two slices, 2 ms kernels", "30+60", "  ".join(f"{share:.1f}" for share in shares), "2 points", good)
    row("subak top -o json, meanwhile", "", " ".join(seen.split())[:400], "", None)
    for _, tenant in slices:
        tenant.end()
    free.end()
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
