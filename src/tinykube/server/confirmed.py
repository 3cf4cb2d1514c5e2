"""How far a server has confirmed writes, in a file beside its database, `state.db-confirmed`.

    open      ──> the log is as long as it must be, and on the disk; then the file says so
    a write   ──> the file says the revision, in place: that needs no room
    close     ──> the log has gone into the database, and the file is removed

A log that was lost, emptied or cut looks to SQLite like one in which nothing was written.  If the file is there, the
server was killed, and the database with its log must have come as far as the file says.  The file outlives the
process, but its last lines may not outlive a loss of power, and neither may the end of the log; so it also says in
which run of the machine it was written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tinykube import private
from tinykube.server import writeahead
from tinykube.server.state import CONFIRMED, Damaged, StateError

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TEXT = re.compile(r"boot ([0-9a-f-]*) log +(\d{1,15}) revision +(\d{1,16})\n")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """The run of the machine, the least length of the log, and the last revision that was confirmed."""

    boot: str
    log: int
    revision: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What a file says; None if there is none.  Raises StateError and OSError."""
        try:
            found = _TEXT.fullmatch(private.read(path))
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        if not found:
            remedy = "if nothing has happened to state.db and state.db-wal beside it, remove it"
            raise StateError(f"{path}: it does not say how far the cluster had come; {remedy}")
        return cls(found[1], int(found[2]), int(found[3]))

    def __str__(self) -> str:
        """Always of one length for one log and one run."""
        return f"boot {self.boot} log {self.log:15} revision {self.revision:16}\n"


class Confirmed:
    """The file of an open database.  Raises OSError if it cannot be written."""

    def __init__(self, database: Path, log: int, revision: int) -> None:
        """`log` is the length that the log has on the disk, and keeps."""
        self._path = database.with_name(CONFIRMED)
        self._mark = Mark(_boot(), log, revision)
        _sync(database.parent)  # first the log, then the file that says that there is one
        self._file = private.file(self._path)
        try:
            self._write(revision)
            os.ftruncate(self._file, len(str(self._mark)))
            os.fsync(self._file)
            _sync(database.parent)
        except BaseException:
            os.close(self._file)
            raise

    def confirm(self, revision: int) -> None:
        """This and all before are in the log."""
        with contextlib.suppress(OSError):  # the write has happened, whatever becomes of this
            self._write(revision)

    def close(self, whole: bool) -> None:
        """Remove the file if the database is whole without a log."""
        os.close(self._file)
        if whole:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _write(self, revision: int) -> None:
        mark = Mark(self._mark.boot, self._mark.log, revision)
        os.pwrite(self._file, str(mark).encode(), 0)


def check(database: Path, revision: Callable[[], int]) -> int:
    """Refuse a database that has not come as far as was confirmed; says how far it has come, 0 if nothing is known.

    Raises Damaged, StateError and OSError.
    """
    mark = Mark.read(database.with_name(CONFIRMED))
    if mark is None:
        return 0
    found = revision()
    if found >= mark.revision:
        return found
    path = writeahead.path_of(database)
    size = path.stat().st_size if path.exists() else 0
    lacks = f"changes up to revision {mark.revision} were confirmed, and those after {found} are gone"
    if size < mark.log:
        state = f"has {size:,} of {mark.log:,} bytes" if path.exists() else "is missing"
        raise Damaged(f"{path}: it {state}: {lacks}")
    if mark.boot == _boot():
        raise Damaged(f"{path}: damaged: {lacks}")
    log.warning("%s: %s: the machine lost power before they were on the disk", database, lacks)
    return found


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _sync(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
