"""A backup is taken from under a running server, is whole, and is restored as it was."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tinykube import private
from tinykube.server import backup
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.server.state import Damaged, StateDirectory, StateError
from tinykube.server.store import Store
from tinykube.server.tls import identity

FOLDERS = ["identity"]
WRITER = """
import sys
from pathlib import Path
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
store, _ = open_store(Path(sys.argv[1]), beside=["identity"])
for number in range(10**6):
    store.create(POD, {"metadata": {"namespace": "default", "name": f"a{number}"}, "spec": {"text": "x" * 2000}})
    store.create(POD, {"metadata": {"namespace": "default", "name": f"b{number}"}})
    store.delete(POD, "default", f"a{number}")
    store.create(POD, {"metadata": {"namespace": "default", "name": f"a{number}"}})
    print(number, flush=True)
"""


def filled(directory: Path, count: int = 3) -> Store:
    store, journal = open_store(directory, beside=FOLDERS)
    identity(directory / "identity")
    for number in range(count):
        store.create(POD, {"metadata": {"namespace": "default", "name": f"p{number}"}})
    journal.close()
    return store


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    before = filled(tmp_path / "state")
    who = identity(tmp_path / "state" / "identity")
    made = backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    assert (made.objects, made.revision) == (3, before.revision)
    assert backup.restore(tmp_path / "file", tmp_path / "new" / "state", FOLDERS) == made
    after, journal = open_store(tmp_path / "new" / "state", beside=FOLDERS)
    journal.close()
    assert list(after.range(POD)) == list(before.range(POD))
    assert identity(tmp_path / "new" / "state" / "identity") == who
    assert after.revision >= before.revision + 1_000_000, "no number is given out twice"


def test_a_backup_under_writes_has_all_that_was_confirmed_before_and_no_half(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(state)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed = 0
        for number in range(3):
            confirmed = [int(writer.stdout.readline()) for _ in range(60)][-1]
            backup.write(state, tmp_path / f"file{number}", FOLDERS)
        writer.kill()
    backup.restore(tmp_path / "file2", tmp_path / "restored", FOLDERS)
    store, journal = open_store(tmp_path / "restored", beside=FOLDERS)
    journal.close()
    assert journal.aside == []
    names = {each["metadata"]["name"] for each in store.list(POD)}
    for number in range(confirmed + 1):
        assert {f"a{number}", f"b{number}"} <= names
    last = max(int(name[1:]) for name in names)
    assert {f"b{number}" for number in range(last)} <= names, "it is the state of one moment"


def test_only_its_owner_can_read_a_backup_and_what_is_restored(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    before = os.umask(0)
    try:
        backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
        backup.restore(tmp_path / "file", tmp_path / "restored", FOLDERS)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "restored").stat().st_mode) == 0o700
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "restored").rglob("*")}
    assert set(modes.values()) == {0o600, 0o700}
    assert {path.name for path in modes} == {
        *("lock", "state.db", "identity", "ca.key", "ca.crt", "tls.key", "tls.crt", "token")
    }
    assert {path.name for path in tmp_path.iterdir()} == {"state", "file", "restored"}, "nothing is left over"


def test_a_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link"):
        with pytest.raises(backup.FileTaken):
            backup.write(tmp_path / "state", tmp_path / name)
    backup.write(tmp_path / "state", tmp_path / "link", replace=True)
    assert (tmp_path / "file").read_text() == "precious", "a link is replaced, not followed"
    backup.write(tmp_path / "state", tmp_path / "file", replace=True)
    backup.restore(tmp_path / "file", tmp_path / "restored")


def test_a_directory_without_state_or_with_a_damaged_one_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no state is kept here"):
        backup.write(tmp_path, tmp_path / "file")
    filled(tmp_path / "state", 400)
    database = tmp_path / "state" / "state.db"
    content = database.read_bytes()
    for damaged in (b"", content[:50], content[: len(content) // 2], content[:4096] + bytes(8192) + content[12288:]):
        database.write_bytes(damaged)
        with pytest.raises(Damaged):
            backup.write(tmp_path / "state", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["state"], "nothing is left over"


def test_a_directory_in_use_or_with_anything_in_it_is_not_restored_into(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    backup.write(tmp_path / "state", tmp_path / "file")
    with pytest.raises(StateError, match=r"not empty, there is identity, state\.db.*: name a directory that is not"):
        backup.restore(tmp_path / "file", tmp_path / "state")
    used = StateDirectory(tmp_path / "used")
    with pytest.raises(StateError, match="in use by another process"):
        backup.restore(tmp_path / "file", tmp_path / "used")
    used.close()
    backup.restore(tmp_path / "file", tmp_path / "used")


def test_what_is_no_backup_or_a_damaged_one_is_refused_and_leaves_no_directory(tmp_path: Path) -> None:
    filled(tmp_path / "state", 400)
    with pytest.raises(StateError, match="it is no backup"):
        backup.restore(tmp_path / "state" / "state.db", tmp_path / "new")
    backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    content = (tmp_path / "file").read_bytes()
    for damaged in (b"", b"text" * 100, content[: len(content) // 2], content[:4096] + bytes(8192) + content[12288:]):
        (tmp_path / "file").write_bytes(damaged)
        with pytest.raises(Damaged):
            backup.restore(tmp_path / "file", tmp_path / "new", FOLDERS)
    assert not (tmp_path / "new").exists()


def test_a_restoration_that_fails_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "state")
    backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    write = private.write

    def full(path: Path, content: bytes) -> None:
        if path.name == "token":
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(private, "write", full)
    with pytest.raises(OSError, match="No space left"):
        backup.restore(tmp_path / "file", tmp_path / "new", FOLDERS)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]
    monkeypatch.undo()
    assert backup.restore(tmp_path / "file", tmp_path / "new", FOLDERS).objects == 3


def test_a_server_does_not_take_a_backup_for_its_database(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    (tmp_path / "new").mkdir()
    backup.write(tmp_path / "state", tmp_path / "new" / "state.db")
    with pytest.raises(StateError, match="of another program"):
        open_store(tmp_path / "new")


@pytest.mark.parametrize("folder", ["..", "/etc", "machine", "identity/.."])
@pytest.mark.parametrize("name", ["token", "../x", ".."])
def test_a_made_up_backup_writes_nothing_elsewhere(tmp_path: Path, folder: str, name: str) -> None:
    filled(tmp_path / "state")
    backup.write(tmp_path / "state", tmp_path / "file")
    with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as connection:
        connection.execute("INSERT INTO files VALUES (?, ?, x'00')", (folder, name))
        connection.execute("INSERT INTO files VALUES ('identity', '../../x', x'00'), ('identity', NULL, 7), (7, 7, 7)")
    backup.restore(tmp_path / "file", tmp_path / "in" / "new", FOLDERS)
    assert {path.name for path in (tmp_path / "in" / "new").iterdir()} == {"lock", "state.db"}
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["new"]


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    (tmp_path / "state" / "identity" / "token").unlink()
    (tmp_path / "state" / "identity" / "token").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="it is a link"):
        backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    assert not (tmp_path / "file").exists()


def test_a_pipe_hangs_neither_a_backup_nor_a_restoration(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state" / "state.db")
    with pytest.raises(StateError, match="it is no plain file"):
        backup.write(tmp_path / "state", tmp_path / "file")
    with pytest.raises(StateError, match="it is no plain file"):
        backup.restore(tmp_path / "state" / "state.db", tmp_path / "new")


@pytest.mark.parametrize("place", ["state/state.db", "state/identity/token", "state/new", "pipe"])
def test_a_backup_replaces_neither_the_state_itself_nor_what_is_no_file(tmp_path: Path, place: str) -> None:
    filled(tmp_path / "state")
    os.mkfifo(tmp_path / "pipe")
    before = (tmp_path / "state" / "state.db").read_bytes()
    with pytest.raises(StateError, match="in the state directory itself|is not replaced"):
        backup.write(tmp_path / "state", tmp_path / place, FOLDERS, replace=True)
    assert (tmp_path / "state" / "state.db").read_bytes() == before
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_token_that_is_no_text_prevents_no_backup(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    (tmp_path / "state" / "identity" / "token").write_bytes(b"\xff\xfe\x00\xff")
    backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    backup.restore(tmp_path / "file", tmp_path / "new", FOLDERS)
    assert not (tmp_path / "new" / "identity" / "token").exists()
    assert identity(tmp_path / "new" / "identity").token


KILLED = """
import os, sys
from pathlib import Path
from tinykube.server import backup, database
database.latest = lambda _: os._exit(9)
backup.restore(Path(sys.argv[1]), Path(sys.argv[2]), ["identity"])
"""


def test_a_killed_restoration_is_not_taken_for_a_new_cluster(tmp_path: Path) -> None:
    filled(tmp_path / "state")
    backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "file"), str(tmp_path / "new")]
    assert subprocess.run(command, check=False).returncode == 9
    with pytest.raises(Damaged, match="it is missing, though other things of a cluster are there: identity"):
        open_store(tmp_path / "new", beside=FOLDERS)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE objects ADD COLUMN more",
        "CREATE TRIGGER t AFTER DELETE ON latest BEGIN DELETE FROM objects; END",
        "CREATE VIEW v AS SELECT * FROM objects",
        "CREATE TABLE t (a)",
        "CREATE INDEX i ON objects (data)",
    ],
)
def test_a_backup_with_more_than_we_write_is_refused(tmp_path: Path, statement: str) -> None:
    filled(tmp_path / "state")
    backup.write(tmp_path / "state", tmp_path / "file", FOLDERS)
    with closing(sqlite3.connect(tmp_path / "file", isolation_level=None)) as connection:
        connection.execute(statement)
    with pytest.raises(StateError, match="take a file that nobody has changed"):
        backup.restore(tmp_path / "file", tmp_path / "new", FOLDERS)
    assert not (tmp_path / "new").exists()
