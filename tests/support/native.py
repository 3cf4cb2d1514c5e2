"""Builds the programs of `native/tests` once for all tests, under a lock, and runs them.

`make test` runs the quick ones, plain and small, the profile `ci` all at full size, under sanitizers.
`make test-long` runs that, and then the plain ones at full size with the machine to themselves: `make -C native test`.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support import fuzz

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native"
QUICK = {"TEST_KILLS": "50", "TEST_ROUNDS": "500"}
LONG = {
    "limiter_simulation",
    "test_guest",
    "test_hostile",
    "test_limiter",
    "test_processes",
    "test_programs",
    "test_region",
    "test_sharing",
    "test_state",
    "test_steps",
    "test_symbols",
}
"""Programs that `make test` leaves to the long run: each takes seconds at any size."""
ABLE = bool(shutil.which("gcc") and shutil.which("make"))


class Result(NamedTuple):
    """How a program ended; `missing` says why it could not be built here."""

    returncode: int
    output: str
    errors: str
    missing: str = ""


def programs() -> list[str]:
    """All (variant, program) as `variant/program`, each with what the Makefile leaves out."""
    if not shutil.which("make"):
        return []
    if fuzz.long():
        return [f"{variant}/{Path(path).name}" for variant in ("asan", "tsan") for path in _ask(variant, "programs")]
    return [f"plain/{name}" for path in _ask("plain", "programs") if (name := Path(path).name) not in LONG]


def directory(variant: str) -> Path:
    """The build directory of a variant; the plain one shares that of the package's own library."""
    return NATIVE / "build" if variant == "plain" else NATIVE / "build" / "check" / variant


@functools.cache
def build(variant: str) -> str:
    """Build the library, the mock driver and the test programs of a variant; gives the reason if that is impossible."""
    able = subprocess.run(_make(variant, "supported"), capture_output=True, text=True)
    if able.returncode:
        return able.stdout.strip() or able.stderr.strip()
    directory(variant).mkdir(parents=True, exist_ok=True)
    # A path relative to native/, because make splits paths with spaces.
    command = _make(variant, f"BUILD={directory(variant).relative_to(NATIVE)}", "-j2", "tests")
    with locked():
        made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return ""


@contextmanager
def locked() -> Iterator[None]:
    """Let only one of several sessions build at a time."""
    lock = os.open(NATIVE, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def reach(variant: str, place: Path) -> Path:
    """A path to a variant without spaces, which the loader would take for separators."""
    link = place / variant
    link.symlink_to(directory(variant))
    return link


def run(name: str) -> Result:
    """Build and run a program."""
    variant, program = name.split("/")
    if missing := build(variant):
        return Result(0, "", "", missing)
    env = os.environ | dict(setting.split("=", 1) for setting in _ask(variant, "environment"))
    env["LD_LIBRARY_PATH"] = str(directory(variant) / "mock")
    if not fuzz.long():
        env |= QUICK
    ran = subprocess.run([directory(variant) / "tests" / program], env=env, text=True, capture_output=True)
    return Result(ran.returncode, ran.stdout, ran.stderr)


@functools.cache
def _ask(variant: str, question: str) -> list[str]:
    """What the Makefile says of a variant of the build."""
    return subprocess.run(_make(variant, question), capture_output=True, text=True, check=True).stdout.split()


def _make(variant: str, *arguments: str) -> list[str]:
    return ["make", "-s", "--no-print-directory", "-C", str(NATIVE), f"VARIANT={variant}", *arguments]
