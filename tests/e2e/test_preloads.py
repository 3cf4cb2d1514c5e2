"""Limits hold beside other libraries that people preload, whichever stands first."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e import debian
from tests.support.native import ABLE, build, directory

LIBRARIES = (
    "libjemalloc.so.2",
    "libtcmalloc.so.4",
    "libmimalloc.so.2.0",
    "libtbbmalloc_proxy.so.2",
    "libfaketime.so.1",
)

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc and make build the library")


@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.parametrize("library", LIBRARIES)
def test_limits_hold_beside_it(library: str, ours_first: bool, tmp_path: Path) -> None:
    packages = debian.found("preloads")
    if isinstance(packages, str):
        pytest.skip(packages)
    build("plain")
    (other,), made = packages.rglob(library), directory("plain")
    preloads = [str(made / "libsubak.so"), str(other)]
    environment = {
        "LD_PRELOAD": ":".join(preloads if ours_first else reversed(preloads)),
        "LD_LIBRARY_PATH": f"{made / 'mock'}:{packages / 'usr/lib/x86_64-linux-gnu'}",
        "MOCK_MACHINE": str(tmp_path / "machine"),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "region"),
        "CUDA_DEVICE_MEMORY_LIMIT": "1g",
        "SUBAK_TURNS": str(tmp_path),
        "FAKETIME": "-1d",
    }
    program = [str(made / "tests" / "test_symbols"), "--part", "expect_limit", ""]
    ran = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
