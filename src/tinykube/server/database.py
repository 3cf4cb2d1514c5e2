"""The SQLite file of a state directory: made whole, checked before it is used, mended where single rows are damaged.

What is damaged is never mistaken for something else.  A file that was emptied, cut off or has a broken page is refused.
A row that cannot be read is moved to the table `aside`, and stays there until somebody looks at it.  Indexes can be
made again at any time.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tinykube import private
from tinykube.server import rows
from tinykube.server.rows import LAST, Unreadable
from tinykube.server.state import Damaged, StateDirectory, StateError
from tinykube.server.store import Stored

# How SQLite files say whose they are.
APPLICATION = 0x73756261
VERSION = 2
"""Version 1 had no sums."""
JUMP = 1_000_000_000
"""Where it is not certain how far revisions have come, they go on that much higher: none is given out twice."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_OBJECTS = """(
    resource TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL, sum INTEGER,
    PRIMARY KEY (resource, key)
)"""
_SCHEMA = f"""
BEGIN;
CREATE TABLE objects {_OBJECTS};
CREATE TABLE latest (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL);
INSERT INTO latest VALUES (0, 0);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {VERSION};
COMMIT;
"""
_COLUMNS = {
    "objects": ("resource key revision data", "resource key revision data sum"),
    "latest": ("only revision",),
    "aside": ("resource key revision data sum reason",),
    "files": ("folder name content",),
}
"""All tables of databases and backups, with their columns in each version."""
# What SQLite says of single rows, and of indexes.  Everything else that it says is about pages.
_ABOUT_ROWS = re.compile(
    r"\w+ value in \w+\.\w+$|row \d+ (missing from|values differ from) index |wrong # of entries in index "
    r"|non-unique entry in index |CHECK constraint failed in "
)

_NOT_THE_FILE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY,
}  # fmt: skip

_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE}
"""The latter: there is none for the small file by which processes share the log."""


class Database:
    """An open database, which nobody else writes to."""

    def __init__(self, file: Path) -> None:
        """Open a file and check it.  Raises StateError."""
        self.file = file
        with readable(file):
            check_header(file)
            self.connection = sqlite3.connect(file, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _prepare(self) -> None:
        self.connection.text_factory = _text
        version = check_owner(self.file, self.connection)
        self._sound = check_pages(self.file, self.connection)
        self.connection.execute("PRAGMA journal_mode = WAL").fetchall()
        self.connection.execute("PRAGMA synchronous = NORMAL")
        self.connection.execute("PRAGMA journal_size_limit = 67108864")
        self.connection.execute("PRAGMA cache_spill = OFF")  # nothing is in the log before its commit
        try:
            with transaction(self.connection):
                if version == 1:
                    self.connection.execute("ALTER TABLE objects ADD COLUMN sum INTEGER")
                # Always, to see that it can be written: some damage prevents that.
                self.connection.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
            if version != VERSION or not full:  # on a full disk, what is there can be read all the same
                raise
            return
        # The log begins anew: half a write that a kill has left has other salts than what comes now, see `writeahead`.
        self.connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()

    def load(self) -> tuple[int, dict[tuple[str, str], Stored]]:
        """The latest revision, and all objects that can be read; those that cannot are set aside for good."""
        with readable(self.file):
            good, bad = self._sorted_out()
            counted = self.connection.execute("SELECT only, revision FROM latest").fetchall()
            counts = [count for _, count in counted if isinstance(count, int) and 0 <= count <= LAST]
            revision = max([*counts, *(stored.revision for stored in good.values())], default=0)
            if bad or len(counts) != 1:
                revision = min(revision + JUMP, LAST)
            if bad or len(counts) != 1 or not self._sound:
                self._mend(bad, revision)
        return revision, good

    def _sorted_out(self) -> tuple[dict[tuple[str, str], Stored], dict[int, str]]:
        """Objects, and the numbers of rows that are none, with what is wrong with them."""
        good: dict[tuple[str, str], Stored] = {}
        bad: dict[int, str] = {}
        numbers: dict[tuple[str, str], int] = {}
        for number, *row in self.connection.execute("SELECT rowid, * FROM objects NOT INDEXED"):
            try:
                stored = rows.read(*row)
            except Unreadable as error:
                bad[number] = str(error)
                continue
            name = (row[0], row[1])
            earlier = good.get(name)
            if earlier is not None:  # a damaged index let both in
                older = number if stored.revision < earlier.revision else numbers[name]
                bad[older] = "a later version of it is there"
                if older == number:
                    continue
            good[name], numbers[name] = stored, number
        return good, bad

    def _mend(self, bad: dict[int, str], revision: int) -> None:
        """Set rows aside, and make the table anew: an index that disagrees with it lets no row be deleted."""
        execute = self.connection.execute
        with transaction(self.connection):
            execute("CREATE TABLE IF NOT EXISTS aside (resource, key, revision, data, sum, reason)")
            for number, reason in bad.items():
                execute("INSERT INTO aside SELECT *, ? FROM objects NOT INDEXED WHERE rowid = ?", (reason, number))
            execute(f"CREATE TABLE mended {_OBJECTS}")
            execute("CREATE TEMP TABLE bad (number INTEGER PRIMARY KEY)")
            self.connection.executemany("INSERT INTO bad VALUES (?)", ((number,) for number in bad))
            execute("INSERT INTO mended SELECT * FROM objects NOT INDEXED WHERE rowid NOT IN (SELECT number FROM bad)")
            execute("DROP TABLE bad")
            execute("DROP TABLE objects")
            execute("ALTER TABLE mended RENAME TO objects")
            execute("DELETE FROM latest")
            execute("INSERT INTO latest VALUES (0, ?)", (revision,))

    def aside(self) -> list[tuple[Any, Any, Any, str]]:
        """What was set aside, now or at an earlier start: resource, key, data and reason."""
        with readable(self.file):
            if not self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'aside'").fetchone():
                return []
            return self.connection.execute("SELECT resource, key, data, reason FROM aside").fetchall()


def create(directory: StateDirectory) -> None:
    """Make an empty database.  It appears as a whole: a process that is killed meanwhile leaves no half of one."""
    with fresh(directory) as connection:
        connection.executescript(_SCHEMA)


@contextmanager
def fresh(directory: StateDirectory) -> Iterator[sqlite3.Connection]:
    """A new file to fill, which becomes the database of the directory at the end.  Raises OSError."""
    unfinished = directory.unfinished
    unfinished.unlink(missing_ok=True)
    opened = private.file(unfinished)  # SQLite would make it for all to read
    try:
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")  # a half of it is worth nothing
            connection.execute("PRAGMA synchronous = OFF")
            yield connection
        os.fsync(opened)
    finally:
        os.close(opened)
    unfinished.replace(directory.database)


def reader(file: Path) -> sqlite3.Connection:
    """A connection that changes nothing, beside whoever writes.  Raises StateError, OSError and sqlite3.Error."""
    check_header(file)
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.text_factory = _text
    return connection


def check_header(file: Path) -> None:
    """Refuse a file that is no database.  SQLite takes an empty one for new, and removes the journal beside it."""
    with open(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as content:  # it may be a pipe
        found = os.fstat(content.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise StateError(f"{file}: it is no plain file; name another, or remove it")
        header, size = content.read(_HEADER_BYTES), found.st_size
    if not header:
        raise Damaged(f"{file}: it is empty")
    if not header.startswith(_MAGIC):
        raise Damaged(f"{file}: not readable: file is not a database")
    # SQLite misses whole pages, but takes what a page lacks at its end for zeros.  What is in the log may mend that.
    page = int.from_bytes(header[16:18], "big")  # ours have 4,096 bytes
    if len(header) < _HEADER_BYTES or (page and size % page and not _has_log(file)):
        raise Damaged(f"{file}: it is cut off after {size} bytes")


def _has_log(file: Path) -> bool:
    log = file.with_name(f"{file.name}-wal")
    return log.exists() and log.stat().st_size > 0


def check_owner(file: Path, connection: sqlite3.Connection, application: int = APPLICATION) -> int:
    """The version of a database of ours.  Raises StateError if it is none."""
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if found != application and tables:
        raise StateError(f"{file}: a database of another program; choose another directory")
    if not tables >= {"objects", "latest"}:
        raise Damaged(f"{file}: its tables are gone")
    _check_schema(file, connection)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not 0 < version <= VERSION:
        raise StateError(f"{file}: has format {version}, this program reads {VERSION}")
    return int(version)


def _check_schema(file: Path, connection: sqlite3.Connection) -> None:
    """Refuse what we never make: a trigger would run with our rights, and a column more moves all others."""
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        if kind == "index" and sql is None:  # of a primary key
            continue
        if kind != "table" or name not in _COLUMNS:
            raise StateError(f"{file}: it has a {kind} that is not ours, {name!r}; take a file that nobody has changed")
        found = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
        columns = " ".join(column for column, _ in found)
        if columns not in _COLUMNS[name] or any(hidden for _, hidden in found):
            said = f"the table {name!r} has the columns {columns!r}"
            raise StateError(f"{file}: {said}, not {_COLUMNS[name][-1]!r}; take a file that nobody has changed")


def latest(connection: sqlite3.Connection) -> int:
    """The highest revision that any row says."""
    query = "SELECT max(revision) FROM (SELECT revision FROM latest UNION ALL SELECT revision FROM objects)"
    (revision,) = connection.execute(f"{query} WHERE typeof(revision) = 'integer' AND revision <= {LAST}").fetchone()
    return revision or 0


def check_pages(file: Path, connection: sqlite3.Connection) -> bool:
    """Refuse a database with a damaged page; says whether its rows and indexes are sound as well."""
    problems = [line for (text,) in connection.execute("PRAGMA integrity_check") for line in text.splitlines()]
    for problem in problems:
        if problem != "ok" and not _ABOUT_ROWS.match(problem):
            raise Damaged(f"{file}: damaged: {problem}")
    return problems == ["ok"]


@contextmanager
def readable(file: Path, into: Path | None = None) -> Iterator[None]:
    """Say what SQLite cannot read, and whether the file is to blame, or that there is no room where it is read into."""
    try:
        yield
    except UnicodeDecodeError as error:  # what SQLite says quotes what it could not read
        raise Damaged(f"{file}: not readable: its schema is no text") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # without the details
        if code == sqlite3.SQLITE_FULL and into is not None:
            raise StateError(f"{into}: there is no room on the disk") from error
        if getattr(error, "sqlite_errorcode", 0) in _NO_ROOM:
            raise StateError(f"{file}: there is no room on the disk: make some, and try again") from error
        if code in _NOT_THE_FILE:
            raise StateError(f"{file}: cannot be used: {error}") from error
        raise Damaged(f"{file}: not readable: {error}") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _text(raw: bytes) -> str:
    """Text that may be damaged, so that the row can be told from others."""
    return raw.decode(errors="surrogateescape")
