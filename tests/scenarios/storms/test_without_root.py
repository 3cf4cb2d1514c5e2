"""All storms once more, as a user without any rights."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.nobody import NOBODY, as_nobody, possible


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
@pytest.mark.long
@pytest.mark.skipif(not possible(), reason="util-linux's setpriv and unshare are not installed")
def test_an_ordinary_user_stands_the_same_storms() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={directory}/tests"]
        env = {"PATH": os.environ["PATH"], "HOME": directory, "TMPDIR": directory}
        command = as_nobody(*tests, "--hypothesis-profile=ci", "--durations=8", str(Path(__file__).parent))
        ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout
