"""A state directory as one file, and back.

The file is a SQLite database too: a copy of that of the directory, as it was at one moment, and in a table the small
files of folders beside it.  It can be taken while a server runs and writes, and appears as a whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tinykube import private
from tinykube.server import database, sqlite
from tinykube.server.database import APPLICATION, JUMP, readable, reader
from tinykube.server.rows import LAST
from tinykube.server.state import DATABASE, StateDirectory, StateError, is_idle

BACKUP = 0x73756262
"""How a backup says what it is: no server takes it for its own."""

_NAME = re.compile(r"[a-z]+(\.[a-z]+)*")


class FileTaken(Exception):
    """There is a file already."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What is in a backup."""

    objects: int
    revision: int


def write(directory: Path, file: Path, folders: Collection[str] = (), *, replace: bool = False) -> Summary:
    """Write a backup of a directory, with the files of some of its folders, whether a server runs on it or not.

    Raises FileTaken, unless a file is to be replaced; StateError and OSError.
    """
    source = directory / DATABASE
    if not source.exists():
        raise StateError(f"{directory}: no state is kept here: there is no {DATABASE}")
    _check_place(directory, file, replace)
    if is_idle(directory):  # a running server sees to its log itself
        sqlite.check(source)
    opened, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # readable for its owner only
    unfinished = Path(name)
    try:
        with readable(source, file), closing(reader(source)) as origin, closing(_connection(unfinished)) as copy:
            origin.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            database.check_owner(source, copy)
            database.check_pages(source, copy)
            copy.execute("CREATE TABLE files (folder TEXT, name TEXT, content BLOB)")
            copy.executemany("INSERT INTO files VALUES (?, ?, ?)", _files(directory, folders))
            copy.execute(f"PRAGMA application_id = {BACKUP}")
            summary = _summary(copy)
        os.fsync(opened)
        _give_name(unfinished, file, replace)
        return summary
    finally:
        os.close(opened)
        for suffix in ("", "-wal", "-shm"):
            Path(f"{unfinished}{suffix}").unlink(missing_ok=True)


def restore(file: Path, directory: Path, folders: Collection[str] = ()) -> Summary:
    """Make a directory from a backup, as a server has left it.  Raises StateError and OSError."""
    with readable(file, directory), closing(reader(file)) as backup:
        (application,) = backup.execute("PRAGMA application_id").fetchone()
        if application != BACKUP:
            raise StateError(f"{file}: it is no backup")
        database.check_owner(file, backup, BACKUP)
        database.check_pages(file, backup)
        target = StateDirectory(directory, folders)
        try:
            if found := target.found():
                there = ", ".join(sorted(found)[:3])
                raise StateError(f"{directory}: not empty, there is {there}: name a directory that is not there yet")
            try:
                return _restored(backup, target, folders)
            except BaseException:
                for folder in folders:
                    shutil.rmtree(target.path / folder, ignore_errors=True)
                target.unfinished.unlink(missing_ok=True)
                raise
        finally:
            target.close()


def _restored(backup: sqlite3.Connection, target: StateDirectory, folders: Collection[str]) -> Summary:
    for folder in folders:  # first: with a folder and without a database, a directory is not taken for a new one
        private.directory(target.path / folder)
    with database.fresh(target) as connection:  # has its name last: half a directory is not taken for a whole one
        backup.backup(connection)
        summary = _summary(connection)
        for folder, name, content in connection.execute("SELECT folder, name, content FROM files"):
            if folder in folders and _NAME.fullmatch(str(name)) and isinstance(content, bytes):
                private.write(target.path / folder / name, content)
        connection.execute("DROP TABLE files")
        connection.execute("DELETE FROM latest")
        connection.execute("INSERT INTO latest VALUES (0, ?)", (min(summary.revision + JUMP, LAST),))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    for folder in folders:
        with suppress(OSError):
            (target.path / folder).rmdir()  # if it has remained empty
    return summary


def _connection(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")  # it is synchronized once, at the end
    return connection


def _files(directory: Path, folders: Collection[str]) -> Iterator[tuple[str, str, bytes]]:
    for folder in folders:
        for path in sorted((directory / folder).glob("*")):
            if not _NAME.fullmatch(path.name):  # it is being written
                continue
            try:
                yield folder, path.name, private.read(path).encode()
            except ValueError:
                continue  # it is no text, and is made anew at the next start


def _summary(connection: sqlite3.Connection) -> Summary:
    (objects,) = connection.execute("SELECT count(*) FROM objects").fetchone()
    return Summary(objects, database.latest(connection))


def _check_place(directory: Path, file: Path, replace: bool) -> None:
    """Refuse a place for a backup that is of the state itself, or not for files.  Raises FileTaken and StateError."""
    if file.parent.resolve().is_relative_to(directory.resolve()):
        raise StateError(f"{file}: it is in the state directory itself; name a file elsewhere")
    if not os.path.lexists(file):
        return
    if not replace:
        raise FileTaken(str(file))
    if not (file.is_file() or file.is_symlink()):
        raise StateError(f"{file}: it is no plain file, and is not replaced; name another")


def _give_name(unfinished: Path, file: Path, replace: bool) -> None:
    if replace:
        unfinished.replace(file)
        return
    try:
        os.link(unfinished, file)  # unlike a rename, it does not replace
    except FileExistsError:
        raise FileTaken(str(file)) from None
