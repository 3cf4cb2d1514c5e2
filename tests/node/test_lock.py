"""One agent a machine, and the second one is told who the first is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from subak.node.lock import HostLock, Locked

HOLD = """
import sys
from pathlib import Path
from subak.node.lock import HostLock
lock = HostLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_agent_is_told_who_has_the_lock(tmp_path: Path) -> None:
    first = HostLock(tmp_path / "run")
    with pytest.raises(Locked, match=rf"agent.lock is held by process {os.getpid()} \(subak agent\)"):
        HostLock(tmp_path / "run")
    with pytest.raises(Locked):  # the question has not erased the answer
        HostLock(tmp_path / "run")
    first.release()
    HostLock(tmp_path / "run").release()


def test_the_lock_ends_with_a_killed_agent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(Locked, match=f"process {other.pid}"):
            HostLock(tmp_path)
        other.kill()
        other.wait()
    HostLock(tmp_path).release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Locked, match="file/agent.lock: File exists.*--host-root"):
        HostLock(tmp_path / "file")
