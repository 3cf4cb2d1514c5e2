"""libsubak on NVIDIA's own driver libraries of several versions: what a program finds and is told without a card."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import debian
from tests.support.native import ABLE, NATIVE, ROOT, build, directory

REQUESTS = sorted((NATIVE / "tests" / "data").glob("cudart-*-requests.txt"))

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc and make build the library")


@pytest.fixture(scope="module")
def hooks() -> set[str]:
    """The functions that libsubak stands in front of, as it exports them."""
    build("plain")
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(directory("plain") / "libsubak.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"\b(?:cu|nvml)[A-Z]\w+", listed.stdout))


def _probe(driver: Path, names: Path, **more: str) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.e2e.driver_probe", str(names), *map(str, REQUESTS)],
        cwd=ROOT,
        env=os.environ | {"LD_LIBRARY_PATH": str(driver)} | more,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


@pytest.mark.parametrize("version", debian.DRIVERS)
def test_every_look_up_is_the_drivers_or_ours(version: str, hooks: set[str], tmp_path: Path) -> None:
    package = debian.found(version)
    if isinstance(package, str):
        pytest.skip(package)
    (driver,) = {path.parent for path in package.rglob("libcuda.so.1")}
    names = tmp_path / "names"
    names.write_text("\n".join(hooks))
    plain = _probe(driver, names)
    limited = _probe(
        driver,
        names,
        LD_PRELOAD=str(directory("plain") / "libsubak.so"),
        CUDA_DEVICE_MEMORY_LIMIT="1g",
        CUDA_DEVICE_SM_LIMIT="30",
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(tmp_path / "region"),
        SUBAK_TURNS=str(tmp_path),
    )

    def expected(pointee: str) -> str:
        name = pointee.rpartition(" ")[2]
        return f"libsubak {name}" if name in hooks else pointee

    assert limited["calls"] == plain["calls"]
    assert limited["symbols"] == {name: [*map(expected, found)] for name, found in plain["symbols"].items()}
    for when in ("early", "late"):
        answers = {asked: [*answer[:2], expected(answer[2])] for asked, answer in plain[when].items()}
        assert limited[when] == answers
    ours = [name for name, found in limited["symbols"].items() if found[-1].startswith("libsubak")]
    assert len(ours) > 150
    assert len(ours) < len(hooks)  # what is newer than the driver is not found
