"""What is stored, kept in SQLite: one transaction per write, done before anybody hears of it.

A commit hands the write to the operating system, so that a process that is killed loses nothing that it had confirmed.
(A machine that loses power may lose the last moments, but never half a write.)  A write that fails has not happened.
On a full disk, new objects are refused; those that are there can be changed and deleted, see `reserve`.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tinykube.server import confirmed, database, errors, rows, writeahead
from tinykube.server.confirmed import Confirmed
from tinykube.server.database import Database, reader, transaction
from tinykube.server.kinds import Kind
from tinykube.server.reserve import Gone, NoRoom, Reserve
from tinykube.server.rows import Unreadable
from tinykube.server.state import DATABASE, StateDirectory, StateError
from tinykube.server.store import HISTORY, Kept, Store

# In place: to replace the row would move it, and write its index too.
_PUT = """
INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT (resource, key)
DO UPDATE SET revision = excluded.revision, data = excluded.data, sum = excluded.sum
"""
LITTLE = 4096
"""Bytes by which an object may grow on a full disk: that it is bound, runs, has ended or is to be deleted."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Aside:
    """An object that could not be read, as far as its row says which, and what is wrong with it."""

    resource: str
    key: str
    reason: str


class SqliteJournal:
    """Writes to `state.db` in a directory, which no other process can open meanwhile.

    `beside` are names of other things that the owner of the journal keeps there.  Once it is loaded, `aside` are the
    objects that could not be read, now or at an earlier start, and `resources` counts those that can.
    """

    def __init__(self, directory: Path, beside: Collection[str] = ()) -> None:
        self.aside: list[Aside] = []
        self.resources: Counter[str] = Counter()
        self._failing = False
        self._directory = StateDirectory(directory, beside)
        try:
            if self._directory.is_new():
                database.create(self._directory)
            revision = check(self._directory.database)
            self._database = Database(self._directory.database)
            self._connection = self._database.connection
            self._reserve, self._confirmed = self._with_reserve(revision)
        except (OSError, sqlite3.Error) as error:
            self._directory.close()
            raise StateError(f"{directory}: cannot keep state here: {error}") from error
        except BaseException:
            self._directory.close()
            raise

    def put(self, resource: str, key: str, revision: int, data: bytes) -> None:
        row = (resource, key, revision, data, rows.checksum(resource, key, revision, data))
        with self._writing():
            try:
                self._reserve.take(len(data))
            except NoRoom:
                if self._grows(resource, key, len(data)):
                    raise
            self._connection.execute(_PUT, row)
        self._confirmed.confirm(revision)

    def remove(self, resource: str, key: str, revision: int) -> None:
        with self._writing(), transaction(self._connection):
            self._connection.execute("DELETE FROM objects WHERE resource = ? AND key = ?", (resource, key))
            self._connection.execute("UPDATE latest SET revision = ?", (revision,))
        self._confirmed.confirm(revision)

    def load(self) -> Kept:
        revision, objects = self._database.load()
        self.resources = Counter(resource for resource, _ in objects)
        found = self._database.aside()
        self.aside = [Aside(_legible(resource), _legible(key), reason) for resource, key, _, reason in found]
        names = {(resource, name) for resource, key, data, _ in found for name in rows.names(key, data)}
        return Kept(revision, objects, names)

    def close(self) -> None:
        """Let others have the directory."""
        self._connection.close()
        self._confirmed.close(self._reserve.is_whole())
        self._reserve.close()
        self._directory.close()

    def _with_reserve(self, revision: int) -> tuple[Reserve, Confirmed]:
        """From here on a log is expected, and whoever writes is sure to be found out if it is lost."""
        file = self._directory.database
        with ExitStack() as opened:
            opened.callback(self._connection.close)
            reserve = Reserve(self._connection, file)
            opened.callback(reserve.close)
            marked = Confirmed(file, reserve.log, revision)
            opened.pop_all()
        return reserve, marked

    def _grows(self, resource: str, key: str, size: int) -> bool:
        """Whether an object is new, or more than a little larger than it was."""
        query = "SELECT length(data) FROM objects WHERE resource = ? AND key = ?"
        before = self._connection.execute(query, (resource, key)).fetchone()
        return before is None or size > before[0] + LITTLE

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Answer what the disk refuses.  It is logged once, until a write succeeds again."""
        try:
            self._reserve.check()
            yield
        except Gone as error:
            message = f"{error}; nothing was changed: stop the cluster, but do not kill it, and start it again"
            raise errors.internal(message) from None
        except NoRoom as error:
            message = f"{self._database.file} cannot grow: {error}; nothing was changed"
            raise errors.internal(f"{message}: delete something or make room there, and try again") from None
        except sqlite3.Error as error:
            message = f"{self._database.file} cannot be written: {error}"
            if not self._failing:
                log.error("%s; all changes are refused until it can", message)
            self._failing = True
            raise errors.internal(f"{message}; nothing was changed: make room there, and try again") from error
        if self._failing:
            log.warning("%s can be written again", self._database.file)
            self._failing = False


def check(file: Path) -> int:
    """Refuse a database that nobody has open, if its log is damaged or lost; says how far it has come, if it must.

    Raises StateError and OSError.
    """

    def revision() -> int:
        with database.readable(file), closing(reader(file)) as connection:
            return database.latest(connection)

    database.check_header(file)
    writeahead.check(file)
    return confirmed.check(file, revision)


def kept(directory: Path, kind: Kind, key: str) -> bytes | None:
    """An object of a state directory that is not open; None if it is not there, or cannot be read."""
    try:
        with closing(reader(directory / DATABASE)) as connection:
            found = connection.execute("SELECT * FROM objects WHERE resource = ? AND key = ?", (kind.resource, key))
            row = found.fetchone()
        return rows.read(*row).data if row else None
    except (sqlite3.Error, UnicodeDecodeError, StateError, OSError, Unreadable):
        return None  # opening it will say why


def open_store(
    directory: Path, history: int = HISTORY, custom: Sequence[Kind] = (), beside: Collection[str] = ()
) -> tuple[Store, SqliteJournal]:
    """The store that is kept in a directory, made if it is not there.  Close the journal at the end."""
    journal = SqliteJournal(directory, beside)
    try:
        return Store(journal, history, custom), journal
    except BaseException:
        journal.close()
        raise


def _legible(value: object) -> str:
    """What a row says, as far as it can be printed."""
    text = value if isinstance(value, str) else repr(value)
    return text if text.isprintable() else ascii(text)
