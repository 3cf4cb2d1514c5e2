"""Room that a database has before it needs it, so that a full disk stops only what is new.

    state.db       ends with free pages.  It grows by whole steps, each granted by the disk before SQLite knows of it
    state.db-wal   is as long as it ever gets between two checkpoints, from the first write on

SQLite then asks the disk for nothing: what is deleted or changed is written to the log and later to pages that are
there, however full the disk is, and nobody else can take that room away.  New objects are refused once the free pages
come down to the last few, which are for objects that are there: their bindings, their status, their end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from pathlib import Path

from tinykube.server import writeahead

FLOOR = 64
"""Free pages that only objects that are there may use."""
STEP = 128
"""Pages by which the database grows."""
LOG = 8 << 20
"""Bytes of the log: SQLite empties it after 1,000 pages, and one more write may be as large as an object can be."""

_SPLITS = 8
"""Pages that one write may need besides those of its data, to order the others."""

log = logging.getLogger(__name__)


class NoRoom(Exception):
    """The disk has no room for something new; the text says why."""


class Gone(Exception):
    """A file was removed or replaced under a running server; the text says which."""


class Reserve:
    """The room of an open database.  Close it after the connection.

    `log` is the length of the log that is on the disk for good.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        self._connection = connection
        self._path = file
        self._page = self._number("page_size")
        self._left = 0
        self._short = False
        # Open as long as the connection is: to close a file ends all locks that a process has on it, SQLite's too.
        self._file = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._log = os.open(writeahead.path_of(file), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except BaseException:
            os.close(self._file)
            raise
        with contextlib.suppress(OSError):  # on a full disk; what is new is refused then
            _extend(self._log, LOG)
        self.log = min(os.fstat(self._log).st_size, LOG)
        os.fsync(self._log)

    def check(self) -> None:
        """Raises Gone if what is written would go to files that nobody finds again."""
        for held, path in ((self._file, self._path), (self._log, writeahead.path_of(self._path))):
            if not _is_at(held, path):
                raise Gone(f"{path}: somebody removed or replaced it")

    def is_whole(self) -> bool:
        """Whether, after the connection was closed, the database is in its place and needs no log."""
        return _is_at(self._file, self._path) and not writeahead.path_of(self._path).exists()

    def take(self, size: int) -> None:
        """Make sure that so many bytes can be written, and some more after them.  Raises NoRoom."""
        needed = size // self._page + _SPLITS
        self._left -= needed
        if self._left >= 0:
            return
        try:
            self._secure(needed)
        except (OSError, sqlite3.Error) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            if not self._short:
                log.error("%s cannot grow: %s; nothing new is kept until there is room", self._path, why)
            self._short = True
            raise NoRoom(why) from None

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._file)
        os.close(self._log)

    def _secure(self, needed: int) -> None:
        """See to the log and to the free pages, and count what is left of them."""
        self._allow(1)
        _extend(self._log, LOG)
        _extend(self._file, self._number("page_count") * self._page)  # some may only be in the log yet
        if self._number("freelist_count") < FLOOR + needed:
            self._grow(FLOOR + needed + STEP)
            if self._short:
                log.warning("%s: there is room again", self._path)
            self._short = False
        self._left = self._number("freelist_count") - FLOOR - needed

    def _grow(self, free: int) -> None:
        """Have so many free pages, by a row that comes and goes."""
        execute = self._connection.execute
        most = self._number("page_count") - self._number("freelist_count") + free + _SPLITS
        _extend(self._file, most * self._page)
        self._allow(most)
        try:
            execute("BEGIN IMMEDIATE")
            execute("INSERT INTO objects VALUES ('', '', 0, zeroblob(?), NULL)", (free * (self._page - 4),))
            execute("DELETE FROM objects WHERE resource = '' AND key = ''")
            execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            self._allow(1)

    def _allow(self, pages: int) -> None:
        """Let SQLite have so many pages; it keeps those that it has, and with 1 no write adds any."""
        self._connection.execute(f"PRAGMA max_page_count = {pages}")

    def _number(self, pragma: str) -> int:
        (number,) = self._connection.execute(f"PRAGMA {pragma}").fetchone()
        return int(number)


def _is_at(held: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _extend(file: int, size: int) -> None:
    """Make a file so large, with room on the disk for all of it; a larger one stays.  Raises OSError."""
    now = os.fstat(file).st_size
    if now < size:
        try:
            os.posix_fallocate(file, now, size - now)
        except OSError:
            os.ftruncate(file, now)  # a part of it may have been there
            raise
