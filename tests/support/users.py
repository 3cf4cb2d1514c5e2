"""Other users of the machine, as root can be them: functions that run in a process of another user."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

FIRST, SECOND, STRANGER = 60_001, 60_002, 60_003
"""Users that no machine has: two honest ones, and one who means no good."""

alone = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


def begin(user: int, work: Callable[[], object], keep: int = 2) -> int:
    """Start a process of this user that does the work and ends; gives its pid.  Who is not root cannot change the user.

    Of the files of this process it has the standard streams, and one more that it may keep.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for file in [int(name) for name in os.listdir("/proc/self/fd")]:
            if file > 2 and file != keep:
                with suppress(OSError):  # that of the list itself
                    os.close(file)
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def do(user: int, work: Callable[[], object]) -> None:
    """Have this user do the work, and wait for the end."""
    _, status = os.waitpid(begin(user, work), 0)
    assert status == 0, f"user {user} failed"


@contextmanager
def meanwhile(user: int, work: Callable[[], object]) -> Iterator[None]:
    """While this user has done the work, and is still there, with all that it has open."""
    ready, done = os.pipe()

    def stay() -> None:
        work()
        os.write(done, b"x")
        signal.pause()

    child = begin(user, stay, keep=done)
    try:
        os.close(done)
        assert os.read(ready, 1), f"user {user} failed"
        yield
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextmanager
def shared() -> Iterator[Path]:
    """A directory that is everybody's, as /tmp is."""
    with TemporaryDirectory(prefix="subak-users-", dir="/tmp", ignore_cleanup_errors=True) as path:
        os.chmod(path, 0o1777)
        yield Path(path)
