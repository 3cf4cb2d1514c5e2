"""What is stored, kept in SQLite: one transaction per write, done before anybody hears of it.

A commit hands the write to the operating system, so that a process that is killed loses nothing that it had confirmed.
(A machine that loses power may lose the last moments, but never half a write.)  The directory belongs to one process at
a time, and only its owner can read what is in it: there are Secrets.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from tinykube import private
from tinykube.server.kinds import Kind
from tinykube.server.store import HISTORY, Store, UnknownResource

# How SQLite files say whose they are.
APPLICATION = 0x73756261
VERSION = 1

OURS = frozenset({"lock", "state.db", "state.db-journal", "state.db-shm", "state.db-wal"})
"""All that a journal keeps in its directory."""

SCHEMA = f"""
BEGIN;
CREATE TABLE objects (
    resource TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (resource, key)
);
CREATE TABLE latest (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL);
INSERT INTO latest VALUES (0, 0);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
"""


class StateError(Exception):
    """A state directory that cannot be used, and why."""


class SqliteJournal:
    """Writes to `state.db` in a directory, which no other process can open meanwhile.

    `beside` are names of other things that the owner of the journal keeps there.
    """

    def __init__(self, directory: Path, beside: Collection[str] = ()) -> None:
        self._file = directory / "state.db"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = private.file(directory / "lock")
        except OSError as error:
            raise StateError(f"{directory}: cannot keep state here: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StateError(f"{directory}: in use by another process; stop it or choose another directory") from None
        try:
            _close(directory, OURS.union(beside))
            os.close(private.file(self._file))  # SQLite would make it for all to read
            self._database = self._open()
        except OSError as error:
            os.close(self._lock)
            message = f"cannot be closed to other users: {error.strerror}; choose another directory"
            raise StateError(f"{error.filename}: {message}") from error
        except (StateError, sqlite3.Error) as error:
            os.close(self._lock)
            raise self._damaged(error) from error

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, isolation_level=None)
        try:
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if application == 0 and database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(SCHEMA)
        elif application != APPLICATION:
            raise StateError(f"{self._file}: a database of another program; choose another directory")
        elif version != VERSION:
            raise StateError(f"{self._file}: has format {version}, this program reads {VERSION}")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA journal_size_limit = 67108864")
        problem = database.execute("PRAGMA quick_check(1)").fetchone()
        if problem != ("ok",):
            raise StateError(f"{self._file}: damaged: {problem[0]}; restore a copy or choose another directory")

    def _damaged(self, error: Exception) -> StateError:
        if isinstance(error, StateError):
            return error
        return StateError(f"{self._file}: not readable: {error}; restore a copy or choose another directory")

    def put(self, resource: str, key: str, revision: int, data: bytes) -> None:
        self._database.execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (resource, key, revision, data))

    def remove(self, resource: str, key: str, revision: int) -> None:
        database = self._database
        database.execute("BEGIN")
        try:
            database.execute("DELETE FROM objects WHERE resource = ? AND key = ?", (resource, key))
            database.execute("UPDATE latest SET revision = ?", (revision,))
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def load(self) -> tuple[int, Iterator[tuple[str, str, int, bytes]]]:
        try:
            (revision,) = self._database.execute(
                "SELECT max(revision) FROM (SELECT revision FROM latest UNION ALL SELECT max(revision) FROM objects)"
            ).fetchone()
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        return revision or 0, self._rows()

    def _rows(self) -> Iterator[tuple[str, str, int, bytes]]:
        try:
            yield from self._database.execute("SELECT resource, key, revision, data FROM objects")
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def close(self) -> None:
        """Let others have the directory."""
        self._database.close()
        os.close(self._lock)


def kept(directory: Path, kind: Kind, key: str) -> bytes | None:
    """An object of a state directory that is not open; None if it is not there, or cannot be read."""
    file = directory / "state.db"
    if not file.exists():
        return None
    try:
        with closing(sqlite3.connect(file)) as database:
            query = "SELECT data FROM objects WHERE resource = ? AND key = ?"
            row = database.execute(query, (kind.resource, key)).fetchone()
    except sqlite3.Error:
        return None  # opening it will say why
    return bytes(row[0]) if row else None


def _close(directory: Path, ours: frozenset[str]) -> None:
    """Close what is there to other users.  A directory that holds other things too is left as it is."""
    found = {path.name for path in directory.iterdir()}
    if found <= ours and directory.stat().st_uid == os.geteuid():
        private.close(directory)
    for name in ours & found:
        private.close(directory / name)


def open_store(
    directory: Path, history: int = HISTORY, custom: Sequence[Kind] = (), beside: Collection[str] = ()
) -> tuple[Store, SqliteJournal]:
    """The store that is kept in a directory, made if it is not there.  Close the journal at the end."""
    journal = SqliteJournal(directory, beside)
    try:
        return Store(journal, history, custom), journal
    except (StateError, UnknownResource, msgspec.DecodeError) as error:
        journal.close()
        if isinstance(error, UnknownResource):
            message = f"{directory / 'state.db'}: holds {error}, which this program does not serve"
            raise StateError(message) from error
        raise error if isinstance(error, StateError) else StateError(f"{directory}: damaged: {error}") from error
