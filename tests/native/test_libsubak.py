"""libsubak's own tests, on a mock driver: built and run by `make -C native`, each program a test here.

Needs gcc and make.  What a program prints about a test that failed is shown as it is.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from subak.node import regions

NATIVE = Path(__file__).parents[2] / "native"
PROGRAMS = [*sorted(path.stem for path in (NATIVE / "tests").glob("test_*.c")), "limiter_simulation"]
MIB = 1 << 20

pytestmark = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("make")), reason="gcc and make build the library"
)


@pytest.fixture(scope="session")
def build() -> Path:
    """The library, the mock driver and all test programs."""
    made = subprocess.run(["make", "-C", str(NATIVE), "-j2", "tests"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    return NATIVE / "build"


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(build: Path, program: str) -> None:
    ran = subprocess.run([str(build / "tests" / program)], capture_output=True, text=True, cwd=NATIVE)
    failed = [line for line in ran.stdout.splitlines() if line.startswith("FAIL")]
    assert ran.returncode == 0, "\n".join([*failed, ran.stderr])


@pytest.fixture
def holder(build: Path, tmp_path: Path) -> Iterator[Path]:
    """A process that holds 100 MiB under a limit of 1 GiB; gives the file of its region."""
    region = tmp_path / "container.cache"
    env = os.environ | {
        "LD_PRELOAD": str(build / "libsubak.so"),
        "LD_LIBRARY_PATH": str(build / "mock"),
        "MOCK_MACHINE": str(tmp_path / "machine"),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
        "CUDA_DEVICE_MEMORY_LIMIT": "1g",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "SUBAK_TURNS": str(tmp_path),
    }
    process = subprocess.Popen([str(build / "tests" / "test_region"), "--part", "hold_100", ""], env=env)
    yield region
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_the_node_reads_what_the_library_writes(holder: Path) -> None:
    until = time.monotonic() + 20
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
