"""A directory that keeps the state of a server: who has it, and whether anything was ever kept there.

It belongs to one process at a time, and only its owner can read what is in it: there are Secrets.  A directory is new
as long as nothing of a server lies in it.  One that has lost its database is not new: to begin there as if nothing had
been is to lose it for good.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection
from pathlib import Path

from tinykube import private

LOCK, DATABASE = "lock", "state.db"
UNFINISHED = f"{DATABASE}.new"
"""A database that is being made: it gets its name when it is whole."""
CONFIRMED = f"{DATABASE}-confirmed"
"""How far a server has come that runs or was killed, see `confirmed`."""
OURS = frozenset({DATABASE, f"{DATABASE}-journal", f"{DATABASE}-shm", f"{DATABASE}-wal", CONFIRMED})
"""All that SQLite and we keep in the directory."""


class StateError(Exception):
    """A state directory that cannot be used, and why."""


class Damaged(StateError):
    """What was kept is not there any more, or cannot be read: only a copy helps."""


class StateDirectory:
    """A directory that no other process can open meanwhile, made if it is not there.

    `beside` are names of other things that its owner keeps there.
    """

    def __init__(self, path: Path, beside: Collection[str] = ()) -> None:
        self.path = path
        self.database = path / DATABASE
        self.unfinished = path / UNFINISHED
        self._kept = OURS.union(beside)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(path)
            self._held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StateError(f"{error.filename}: cannot keep state here: {error.strerror}") from error
        self._lock = -1
        try:
            self._lock = private.file(path / LOCK)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _take(self._held)  # too: the lock may have been removed under a running server
            self._close_to_others()
        except BlockingIOError:
            self.close()
            raise StateError(f"{path}: in use by another process; stop it or choose another directory") from None
        except OSError as error:
            self.close()
            message = f"cannot be used: {error.strerror}; remove it or choose another directory"
            raise StateError(f"{error.filename}: {message}") from error

    def found(self) -> set[str]:
        """The names of what lies there, except for the lock."""
        return {each.name for each in self.path.iterdir()} - {LOCK}

    def is_new(self) -> bool:
        """Whether no server has kept anything there.  Raises Damaged if one has, and its database is gone."""
        left = self.found() & self._kept
        if left and DATABASE not in left:
            beside = ", ".join(sorted(left))
            raise Damaged(f"{self.database}: it is missing, though other things of a cluster are there: {beside}")
        return not left

    def close(self) -> None:
        """Let others have it."""
        for held in (self._lock, self._held):
            if held >= 0:
                os.close(held)

    def _close_to_others(self) -> None:
        """Close what is there.  A directory that holds other things too is left as it is."""
        ours, found = self._kept | {UNFINISHED}, self.found()
        if found <= ours and self.path.stat().st_uid == os.geteuid():
            private.directory(self.path)
        for name in ours & found:
            private.close(self.path / name)


def is_idle(path: Path) -> bool:
    """Whether no server has a directory at this moment."""
    held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # somebody has it, or nobody can tell
        return False
    finally:
        os.close(held)
    return True


def _take(directory: int) -> None:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return  # as on NFS, where directories cannot be locked


def _check_owner(path: Path) -> None:
    """Refuse a directory in which another user can replace our files."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0):
        raise StateError(
            f"{path}: it belongs to another user, who could replace what is kept; choose another directory"
        )
    if found.st_mode & stat.S_IWOTH:
        raise StateError(f"{path}: every user can write to it; choose a directory of your own")
