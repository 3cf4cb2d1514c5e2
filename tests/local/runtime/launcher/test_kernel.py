from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[4] / "src/subak/local/runtime"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do this")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("kernel.mount('tmpfs', '/tmp', 'tmpfs')", "mount tmpfs at /tmp: Operation not permitted"),
        ("mounts.restrict('/tmp', mounts.READ_ONLY)", "mount_setattr /tmp: Operation not permitted"),
        ("mounts.clone(os.open('/tmp', os.O_PATH), 0)", "open_tree: Operation not permitted"),
    ],
)
def test_an_error_names_the_call_and_the_place(call: str, said: str) -> None:
    program = f"import os, sys; sys.path.append(sys.argv[1]); from launcher import kernel, mounts; {call}"
    finished = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(SOURCES)], capture_output=True, text=True)
    assert said in finished.stderr
