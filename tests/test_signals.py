"""Programs that tests start have default signals, whatever started the tests: nohup, or a shell in its background."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = "import signal as s; print(*(int(s.getsignal(n)) for n in (s.SIGHUP, s.SIGQUIT)), s.getsignal(s.SIGINT))"
TESTS = f"""
import subprocess, sys
from tests.conftest import pytest_configure
pytest_configure()
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
"""


@pytest.mark.long
def test_what_started_the_tests_ignores_is_not_ignored_by_what_they_start() -> None:
    def ignore() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    root = Path(__file__).parent.parent
    ran = subprocess.run([sys.executable, "-c", TESTS], cwd=root, preexec_fn=ignore, capture_output=True, text=True)
    assert ran.stdout.split()[:2] == ["0", "0"], ran.stderr
    assert "default_int_handler" in ran.stdout
