"""The programs that measure on a real card run on the mock driver too, as far as it goes, so that they do not rot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native import ABLE, NATIVE, build, reach

pytestmark = [pytest.mark.long, pytest.mark.skipif(not ABLE, reason="gcc and make build the library")]


def test_the_stories_of_memory_end_well(tmp_path: Path) -> None:
    build("plain")
    made, rows = reach("plain", tmp_path), tmp_path / "rows"
    env = os.environ | {
        "SUBAK_BUILD": str(made),
        "LD_LIBRARY_PATH": str(made / "mock"),
        "MOCK_MACHINE": str(tmp_path / "machine"),
        "MOCK_MEMORY_MIB": "16384",
        "SUBAK_TABLE": str(rows),
    }
    ran = subprocess.run(
        [sys.executable, str(NATIVE / "tests" / "gpu" / "cases.py")], env=env, capture_output=True, text=True
    )
    verdicts = [json.loads(line)[-1] for line in rows.read_text().splitlines()]
    assert verdicts == ["ok"] * 8, ran.stdout + ran.stderr
    assert ran.returncode == 0
