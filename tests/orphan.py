"""Programs that run beside the tests and are nobody's child: some tests look at their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_START = """
import subprocess, sys
print(subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, start_new_session=True).pid)
"""


class Orphan:
    """A program in a session of its own."""

    def __init__(self, command: Sequence[str], directory: Path, env: Mapping[str, str] | None = None) -> None:
        start = [sys.executable, "-c", _START, *command]
        started = subprocess.run(start, cwd=directory, env=env, check=True, text=True, stdout=subprocess.PIPE)
        self._pid = int(started.stdout)

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return Path(f"/proc/{self._pid}").exists()

    def end(self) -> None:
        """End it, and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
