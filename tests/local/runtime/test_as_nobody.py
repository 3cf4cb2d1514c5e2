"""All the tests of this folder once more, as a user without any rights."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.nobody import NOBODY, as_nobody, possible


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
def test_all_this_works_without_root(able: None) -> None:
    if not possible():
        pytest.skip("util-linux's setpriv and unshare are not installed")
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        finished = subprocess.run(
            [
                *as_nobody(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-p",
                    "no:cacheprovider",
                    f"--basetemp={directory}/tests",
                    "--durations=8",
                ),
                str(Path(__file__).parent),
            ],
            env={"PATH": os.environ["PATH"], "HOME": directory, "TMPDIR": directory},
            capture_output=True,
            text=True,
            timeout=240,
        )
    print(finished.stdout)
    assert finished.returncode == 0, finished.stderr
    assert " passed" in finished.stdout
