"""The programs of `native/tests` in the background: built and run while other tests have their turn.

The limiter's programs measure time, so they run one after the other and with normal priority; everything else runs on
two lanes with the lowest.  All begin with the session, so that most are done when their own tests come.  Builds are kept
in the checkout, under a lock, so that a second run has nothing to compile and two runs at once do not fight.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
VARIANTS = ("plain", "asan", "tsan")
TIMED = ("test_limiter", "limiter_threads")  # of the plain build
LONG = ("test_storm", "test_hostile", "test_steps", "limiter_simulation", "test_processes")  # begun first
ABLE = bool(shutil.which("gcc") and shutil.which("make"))


def ask(variant: str, question: str) -> list[str]:
    """What the Makefile says of a variant of the build."""
    command = ["make", "-s", "--no-print-directory", "-C", str(NATIVE), f"VARIANT={variant}", question]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def programs() -> list[str]:
    """All (variant, program) as `variant/program`, each with what the Makefile leaves out."""
    if not shutil.which("make"):
        return []
    return [f"{variant}/{Path(path).name}" for variant in VARIANTS for path in ask(variant, "programs")]


class Runs:
    """The programs that a session wants, each with its result as soon as it is there."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._processes: set[subprocess.Popen[str]] = set()
        self._ended = False
        self._timed = ThreadPoolExecutor(1)
        self._lanes = ThreadPoolExecutor(2)
        self._builds: dict[str, Future[str]] = {}
        self._results: dict[str, Future[subprocess.CompletedProcess[str]]] = {}
        for name in sorted(wanted, key=_urgency):
            variant, program = name.split("/")
            if variant not in self._builds:
                self._builds[variant] = self._lanes.submit(build, variant, 19)
            timed = variant == "plain" and program in TIMED
            self._results[name] = (self._timed if timed else self._lanes).submit(self._run, variant, program, timed)

    def result(self, name: str) -> subprocess.CompletedProcess[str]:
        """Waits for a program. Skips the test if its sanitizer is missing, and fails it if it was not built."""
        missing = self._builds[name.split("/")[0]].result()
        if missing:
            pytest.skip(missing)
        return self._results[name].result()

    def end(self) -> None:
        """Ends what still runs."""
        self._ended = True
        for process in list(self._processes):
            process.kill()
        self._timed.shutdown(cancel_futures=True)
        self._lanes.shutdown(cancel_futures=True)

    def _run(self, variant: str, program: str, timed: bool) -> subprocess.CompletedProcess[str]:
        missing = self._builds[variant].result()
        if missing or self._ended:
            return subprocess.CompletedProcess(program, 1, "", missing)
        env = os.environ | dict(setting.split("=", 1) for setting in ask(variant, "environment"))
        command = [*(() if timed else ("nice", "-n", "19")), str(directory(variant) / "tests" / program)]
        with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self._processes.add(process)
            output, errors = process.communicate()
            self._processes.discard(process)
        return subprocess.CompletedProcess(program, process.returncode, output, errors)


def _urgency(name: str) -> tuple[bool, int, int]:
    """Long ones first, and plain ones before those that have to be built."""
    variant, program = name.split("/")
    return (variant != "plain", VARIANTS.index(variant), LONG.index(program) if program in LONG else len(LONG))


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
