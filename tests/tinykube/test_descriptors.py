"""How many files a process may have open."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from tinykube import descriptors
from tinykube.door import Bounds

resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
descriptors.raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), descriptors.limit(), Bounds.of_this_process().connections)
"""


@pytest.mark.parametrize(("soft", "hard", "told"), [(64, 1000, "1000 1000 1000 500"), (80, 80, "80 80 80 40")])
def test_a_process_takes_what_its_user_may_have_and_leaves_half_to_others(soft: int, hard: int, told: str) -> None:
    program = [sys.executable, "-c", PROGRAM % (soft, hard)]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip() == told
