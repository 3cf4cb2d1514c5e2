"""What is on disk survives whatever happens to the process."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinykube.server.kinds import NODE, POD
from tinykube.server.sqlite import SqliteJournal, open_store
from tinykube.server.state import StateError
from tinykube.server.store import Store
from tinykube.server.tls import identity

WRITER = """
import sys
from pathlib import Path
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
store, _ = open_store(Path(sys.argv[1]))
for number in range(10**6):
    stored = store.create(POD, {"metadata": {"namespace": "default", "name": f"p{number}"}})
    if number % 3 == 2:
        stored = store.delete(POD, "default", f"p{number - 1}")
    print(number, stored.revision, flush=True)
"""


def fill(store: Store, count: int) -> None:
    for number in range(count):
        store.create(POD, {"metadata": {"namespace": "default", "name": f"p{number}"}, "spec": {"n": number}})


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path / "state")
    fill(store, 3)
    store.update(POD, {"metadata": {"namespace": "default", "name": "p1"}, "spec": {"n": 7}})
    store.delete(POD, "default", "p2")
    before = list(store.range(POD))
    journal.close()
    again, journal = open_store(tmp_path / "state")
    assert list(again.range(POD)) == before
    assert again.revision == store.revision
    journal.close()


def test_a_revision_is_not_given_out_twice_when_its_object_is_gone(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path)
    store.create(NODE, {"metadata": {"name": "n"}})
    last = store.delete(NODE, "", "n").revision
    journal.close()
    again, journal = open_store(tmp_path)
    assert again.create(NODE, {"metadata": {"name": "n"}}).revision == last + 1
    journal.close()


@pytest.fixture
def nothing_masked() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("nothing_masked")
def test_nobody_else_can_look_into_the_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for found in ((), ("state.db", "state.db-wal", "lock")):  # new, and as an earlier version has left it
        for name in found:
            (state / name).chmod(0o644)
            state.chmod(0o755)
            (state / "identity").chmod(0o755)
        store, journal = open_store(state, beside=["identity"])
        identity(state / "identity")
        store.create(POD, {"metadata": {"namespace": "default", "name": f"p{len(found)}"}})
        assert {"identity", "lock", "state.db", "state.db-wal"} <= {path.name for path in state.iterdir()}
        assert {stat.S_IMODE(path.stat().st_mode) for path in (state, state / "identity")} == {0o700}
        assert {stat.S_IMODE(path.stat().st_mode) for path in state.rglob("*") if path.is_file()} == {0o600}
        journal._directory.close()  # killed: what SQLite has beside its file stays


def test_a_directory_that_holds_other_things_is_not_closed_but_ours_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").touch(0o644)
    _, journal = open_store(tmp_path)
    journal.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, *tmp_path.iterdir())}
    assert modes == {tmp_path.name: 0o755, "notes.txt": 0o644, "lock": 0o600, "state.db": 0o600}


def test_history_before_a_restart_is_forgotten(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path)
    fill(store, 2)
    journal.close()
    again, journal = open_store(tmp_path)
    assert again.log(POD).forgotten == store.revision
    journal.close()


def test_a_killed_process_loses_nothing_that_it_confirmed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        confirmed = [writer.stdout.readline().split() for _ in range(200)]
        os.kill(writer.pid, signal.SIGKILL)
        confirmed += [each.split() for each in writer.stdout.read().splitlines()]
    numbers = [int(line[0]) for line in confirmed if len(line) == 2]
    revisions = [int(line[1]) for line in confirmed if len(line) == 2]
    store, journal = open_store(tmp_path)
    names = {each["metadata"]["name"] for each in store.list(POD)}
    for number in numbers[:-1]:
        assert (f"p{number}" in names) == (number % 3 != 1), f"p{number} of {numbers[-1]}"
    assert store.revision >= revisions[-1]
    journal.close()


def test_two_processes_cannot_share_a_directory(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    with pytest.raises(StateError, match="in use by another process"):
        SqliteJournal(tmp_path)
    journal.close()
    SqliteJournal(tmp_path).close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(StateError, match=r"state\.db: not readable: file is not a database"):
        open_store(tmp_path)
    (tmp_path / "state.db").unlink()
    open_store(tmp_path)[1].close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as other:
        other.execute("CREATE TABLE theirs (a)")
    with pytest.raises(StateError, match="of another program"):
        open_store(tmp_path)


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path)
    fill(store, 500)
    journal.close()
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(8192))
    with pytest.raises(StateError, match="state.db"):
        open_store(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot keep state here"):
        open_store(tmp_path / "file" / "state")
