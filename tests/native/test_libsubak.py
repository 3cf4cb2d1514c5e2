"""libsubak's own tests, on a mock driver: each program of `native/tests` is a test here, plain and under sanitizers.

Needs gcc and make; `native/Makefile` says what is run and how, `runs.py` how much of it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from subak.node import regions
from tests.support.native import ABLE, NATIVE, build, programs, reach, run

MIB = 1 << 20

# What a program says of a test that it leaves out, wholly or in part, comes before the result of that test.
LEFT_OUT = re.compile(r"^      left out: (.*)\n(?:      .*\n)*ok +(\w+)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc and make build the library")


@pytest.mark.parametrize("program", programs())
def test_program(program: str) -> None:
    ran = run(program)
    if ran.missing:
        pytest.skip(ran.missing)
    failed = [line for line in ran.output.splitlines() if not line.startswith(("ok ", "      "))]
    assert ran.returncode == 0, "\n".join([program, *failed, ran.errors])
    if left_out := LEFT_OUT.findall(ran.output):
        reasons = "; ".join(f"{name}: {why}" for why, name in left_out)
        pytest.skip(f"{program} passed, less what this machine cannot run: {reasons}")


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Path]:
    """A process that holds 100 MiB under a limit of 1 GiB; gives the file of its region."""
    build("plain")
    made = reach("plain", tmp_path)
    region = tmp_path / "container.cache"
    env = os.environ | {
        "LD_PRELOAD": str(made / "libsubak.so"),
        "LD_LIBRARY_PATH": str(made / "mock"),
        "MOCK_MACHINE": str(tmp_path / "machine"),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
        "CUDA_DEVICE_MEMORY_LIMIT": "1g",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "SUBAK_TURNS": str(tmp_path),
    }
    process = subprocess.Popen([str(made / "tests" / "test_region"), "--part", "hold_100", ""], env=env)
    yield region
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_the_node_reads_what_the_library_writes(holder: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            found = regions.read(holder, time.monotonic_ns())
        except regions.NoRegion:
            continue
        if found.cards and found.cards[0].used_bytes == 200 * MIB:  # with the mock's context of 100 MiB
            break
        time.sleep(0.01)
    assert found.cards[0].uuid.startswith("GPU-abababab")
    assert found.cards[0].used_bytes == 200 * MIB
    assert found.cards[0].memory_limit_bytes == 1024 * MIB
    assert found.cards[0].core_limit_percent == 30
    assert len(found.processes) == 1


def test_what_was_built_in_another_way_is_built_again() -> None:
    """A library that an older Makefile made may lack what a newer one gives it."""
    build("plain")
    asked = ["make", "-C", str(NATIVE), "--dry-run", "BUILD=build", "VARIANT=plain"]
    as_it_is = subprocess.run([*asked, "all"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run([*asked, "--what-if=Makefile", "all"], capture_output=True, text=True, check=True).stdout
    assert " -c " not in as_it_is
    assert " -c src/region.c " in changed
    assert " -c simulated/node.c " in changed
