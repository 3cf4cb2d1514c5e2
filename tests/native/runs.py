"""The programs of `native/tests` in the background: built and run while other tests have their turn.

Programs that measure time run one after the other and with normal priority; everything else runs on two lanes with
the lowest.  All begin with the session, so that most are done when their own tests come.  Builds are kept in the
checkout, under a lock, so that a second run has nothing to compile and two runs at once do not fight.

It is a process of its own (`python -m tests.native.runs DIRECTORY PROGRAM...`), and no child of the tests': some of
them look at their children.  It leaves one file of results for each program.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.orphan import Orphan

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
VARIANTS = ("plain", "asan", "tsan")
TIMED = ("test_limiter", "test_programs", "limiter_threads")  # of the plain build
LONG = ("test_storm", "test_hostile", "test_steps", "limiter_simulation", "test_processes")  # begun first
ABLE = bool(shutil.which("gcc") and shutil.which("make"))
PATIENCE_S = 600


class Result(NamedTuple):
    """How a program ended; `missing` says why it could not be built here."""

    returncode: int
    output: str
    errors: str
    missing: str = ""


class Runs:
    """The programs that a session wants, each with its result as soon as it is there."""

    def __init__(self, wanted: Sequence[str], directory: Path) -> None:
        self._directory = directory
        command = [sys.executable, "-m", "tests.native.runs", str(directory), *wanted]
        self._worker = Orphan(command, ROOT) if wanted else None

    def result(self, name: str) -> Result:
        """Waits for a program."""
        path = _result(self._directory, name)
        until = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < until, f"{name} is not done after {PATIENCE_S} s"
            assert self._worker is not None
            assert self._worker.lives, f"whoever runs {name} has died"
            time.sleep(0.02)
        return Result(*json.loads(path.read_text()))

    def end(self) -> None:
        """Ends what still runs."""
        if self._worker is not None:
            self._worker.end()


def programs() -> list[str]:
    """All (variant, program) as `variant/program`, each with what the Makefile leaves out."""
    if not shutil.which("make"):
        return []
    return [f"{variant}/{Path(path).name}" for variant in VARIANTS for path in _ask(variant, "programs")]


def directory(variant: str) -> Path:
    """Where a variant is built: not where the package's own library is."""
    return NATIVE / "build" / "check" / variant


def build(variant: str, niceness: int) -> str:
    """Makes the library, the mock driver and the test programs of a variant. Gives why it cannot be made."""
    make = ["make", "-s", "--no-print-directory", "-C", str(NATIVE), f"VARIANT={variant}"]
    able = subprocess.run([*make, "supported"], capture_output=True, text=True)
    if able.returncode:
        return able.stdout.strip() or able.stderr.strip()
    directory(variant).mkdir(parents=True, exist_ok=True)
    command = ["nice", "-n", str(niceness), *make, f"BUILD={directory(variant)}", "-j2", "tests"]
    with (directory(variant) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise AssertionError(made.stdout + made.stderr)
    return ""


def _ask(variant: str, question: str) -> list[str]:
    """What the Makefile says of a variant of the build."""
    command = ["make", "-s", "--no-print-directory", "-C", str(NATIVE), f"VARIANT={variant}", question]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _result(directory: Path, name: str) -> Path:
    return directory / f"{name.replace('/', '-')}.json"


# ---- the worker ---------------------------------------------------------------------------------------------------


def _urgency(name: str) -> tuple[int, int]:
    """Plain ones before those that have to be built, long ones first."""
    variant, program = name.split("/")
    return VARIANTS.index(variant), LONG.index(program) if program in LONG else len(LONG)


def _run(name: str, timed: bool, built: Future[str]) -> Result:
    variant, program = name.split("/")
    try:
        if missing := built.result():
            return Result(0, "", "", missing)
    except AssertionError as error:
        return Result(1, "", str(error))
    env = os.environ | dict(setting.split("=", 1) for setting in _ask(variant, "environment"))
    command = [*(() if timed else ("nice", "-n", "19")), str(directory(variant) / "tests" / program)]
    ran = subprocess.run(command, env=env, text=True, capture_output=True)
    return Result(ran.returncode, ran.stdout, ran.stderr)


def _keep(results: Path, name: str, timed: bool, built: Future[str]) -> None:
    path = _result(results, name)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(_run(name, timed, built)))
    unfinished.rename(path)


def _work(results: Path, wanted: Sequence[str]) -> None:
    builds: dict[str, Future[str]] = {}
    with ThreadPoolExecutor(1) as timed_lane, ThreadPoolExecutor(2) as lanes:
        for name in sorted(wanted, key=_urgency):
            variant, program = name.split("/")
            if variant not in builds:
                builds[variant] = lanes.submit(build, variant, 0 if variant == "plain" else 19)
            timed = variant == "plain" and program in TIMED
            (timed_lane if timed else lanes).submit(_keep, results, name, timed, builds[variant])


if __name__ == "__main__":
    _work(Path(sys.argv[1]), sys.argv[2:])
