"""Files and directories that only their owner can read, from the first moment on.

What was made by an earlier version, or by hand, is closed to others when it is used.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = 0o077


def directory(path: Path) -> None:
    """Make a directory, with its parents, or close one that is there.  Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    close(path)


def file(path: Path) -> int:
    """Open a file, made if it is not there, and close it to others.  Raises OSError."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    close(opened)
    return opened


def close(path: Path | int) -> None:
    """Take all rights from everybody but the owner; a missing file is fine.  Raises OSError."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if mode & OTHERS:
        os.chmod(path, mode & ~OTHERS)
