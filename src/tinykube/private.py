"""Files and directories that only their owner can read, from the first moment on.

What was made by an earlier version, or by hand, is closed to others when it is used.  A file is the file itself: a link
in its place, or something that belongs to another user, is refused.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

OTHERS = 0o077
MOST_BYTES = 1 << 20
"""Of a text: keys and tokens are short."""


def directory(path: Path) -> None:
    """Make a directory, with its parents, or close one that is there.  Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    _close(path, os.stat(path))


def file(path: Path) -> int:
    """Open a file, made if it is not there, and close it to others.  Raises OSError."""
    return _opened(path, os.O_RDWR | os.O_CREAT)


def read(path: Path) -> str:
    """The text of a file, which is closed to others.  Raises OSError, and ValueError if it is no text."""
    with os.fdopen(_opened(path, os.O_RDONLY), "rb") as content:
        return content.read(MOST_BYTES).decode()


def close(path: Path) -> None:
    """Take all rights from everybody but the owner; a missing file is fine.  Raises OSError."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    _close(path, _ours(path, found))


def write(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all, in the place of what was there.  Raises OSError."""
    opened, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(opened)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise


def _opened(path: Path, flags: int) -> int:
    try:
        opened = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # it may be a pipe
    except OSError as error:
        raise _link(path) if error.errno == errno.ELOOP else error from None
    try:
        found = _ours(path, os.fstat(opened))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        _close(opened, found)
    except BaseException:
        os.close(opened)
        raise
    return opened


def _ours(path: Path, found: os.stat_result) -> os.stat_result:
    if stat.S_ISLNK(found.st_mode):
        raise _link(path)
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it belongs to another user", str(path))
    return found


def _link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a link", str(path))


def _close(path: Path | int, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & OTHERS:
        os.chmod(path, mode & ~OTHERS)
