"""Damage of any kind: the start is refused with a sentence, or everything that is undamaged is served."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tinykube.server import reserve
from tinykube.server.database import JUMP
from tinykube.server.kinds import CONFIG_MAP, KINDS, NODE, POD, Kind
from tinykube.server.reserve import Reserve
from tinykube.server.rows import LAST, checksum
from tinykube.server.sqlite import Aside, kept, open_store
from tinykube.server.state import Damaged, StateError
from tinykube.server.store import Store
from tinykube.status import ApiError

Contents = dict[tuple[str, str], bytes]

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where many small databases cost no disk."""


def contents(store: Store) -> Contents:
    return {(kind.resource, key): stored.data for kind in store.kinds for key, stored in store.range(kind)}


def object(kind: Kind, name: str, size: int = 3) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    return {"metadata": metadata, "spec": {"text": "x" * size, "number": 7}}


def fill(store: Store, count: int = 2, size: int = 3) -> Contents:
    for kind in store.kinds:
        for number in range(count):
            store.create(kind, object(kind, f"o{number}", size))
    return contents(store)


def made(directory: Path, count: int = 2, size: int = 3) -> Contents:
    store, journal = open_store(directory)
    before = fill(store, count, size)
    journal.close()
    return before


def alter(directory: Path, *statements: str) -> None:
    with closing(sqlite3.connect(directory / "state.db", isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def reopened(directory: Path) -> tuple[Contents, list[Aside], int]:
    store, journal = open_store(directory)
    journal.close()
    return contents(store), journal.aside, store.revision


PODS_0 = "WHERE resource = 'pods' AND key = 'default/o0'"
DAMAGE = {
    "bad JSON": f"UPDATE objects SET data = x'7b7b', sum = NULL {PODS_0}",
    "no UTF-8": f"UPDATE objects SET data = x'22ff22', sum = NULL {PODS_0}",
    "no object": f"UPDATE objects SET data = x'5b5d', sum = NULL {PODS_0}",
    "no metadata": f"UPDATE objects SET data = CAST('{{}}' AS BLOB), sum = NULL {PODS_0}",
    "metadata of another type": f"UPDATE objects SET data = CAST('{{\"metadata\":7}}' AS BLOB), sum = NULL {PODS_0}",
    "no bytes at all": f"UPDATE objects SET data = x'', sum = NULL {PODS_0}",
    "too deep": f"UPDATE objects SET data = CAST(replace(hex(zeroblob(50000)), '0', '[') AS BLOB), sum = NULL {PODS_0}",
    "text for bytes": f"UPDATE objects SET data = CAST(data AS TEXT) {PODS_0}",
    "a byte changed": f"UPDATE objects SET data = CAST(replace(data, 'xxx', 'xyx') AS BLOB) {PODS_0}",
    "another name": f"UPDATE objects SET key = 'default/other', sum = NULL {PODS_0}",
    "a key that is no text": f"UPDATE objects SET key = x'ff00' {PODS_0}",
    "a key that is broken text": f"UPDATE objects SET key = CAST(x'ff00' AS TEXT) {PODS_0}",
    "a resource that is no text": f"UPDATE objects SET resource = x'ff' {PODS_0}",
    "a negative revision": f"UPDATE objects SET revision = -1 {PODS_0}",
    "an absurd revision": f"UPDATE objects SET revision = {2**63 - 1}, sum = NULL {PODS_0}",
    "a revision that is no number": f"UPDATE objects SET revision = 'many' {PODS_0}",
    "another revision": f"UPDATE objects SET revision = revision + 1000, sum = NULL {PODS_0}",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
def test_an_unreadable_row_is_set_aside_and_all_others_are_served(tmp_path: Path, statement: str) -> None:
    before = made(tmp_path)
    alter(tmp_path, statement)
    found, aside, revision = reopened(tmp_path)
    assert found == {name: data for name, data in before.items() if name != ("pods", "default/o0")}
    assert len(aside) == 1
    assert revision == len(before) + 1 + JUMP, "nobody knows whether its revision was the last"
    assert reopened(tmp_path) == (found, aside, revision), "a second start does the same"


def test_nothing_of_a_row_that_is_set_aside_is_lost(tmp_path: Path) -> None:
    made(tmp_path)
    alter(tmp_path, f"UPDATE objects SET data = x'7b00ff' {PODS_0}")
    reopened(tmp_path)
    store, journal = open_store(tmp_path)
    store.create(POD, object(POD, "o0"))  # its name is free
    journal.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        (row,) = connection.execute("SELECT resource, key, data, reason FROM aside")
    assert row == ("pods", "default/o0", b"\x7b\x00\xff", "its bytes have changed")
    assert ("pods", "default/o0") in reopened(tmp_path)[0]


def test_a_name_that_was_set_aside_is_known(tmp_path: Path) -> None:
    made(tmp_path)
    alter(tmp_path, f"UPDATE objects SET data = x'00' {PODS_0}", "UPDATE objects SET key = 'q' WHERE key = 'o1'")
    store, journal = open_store(tmp_path)
    journal.close()
    assert store.is_aside(POD, "default", "o0")
    assert store.is_aside(NODE, "", "o1"), "its data still say what it was"
    assert not store.is_aside(POD, "default", "o1")


def test_objects_that_are_not_served_stay_for_a_program_that_serves_them(tmp_path: Path) -> None:
    before = made(tmp_path)
    data = before["pods", "default/o0"]
    revision = "(SELECT revision FROM objects WHERE resource = 'pods' AND key = 'default/o0')"
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        (number,) = connection.execute(f"SELECT {revision}").fetchone()
        row = ("widgets.io", "default/o0", number, data, checksum("widgets.io", "default/o0", number, data))
        connection.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?)", row)
    for _ in range(2):
        store, journal = open_store(tmp_path)
        assert contents(store) == before
        assert journal.resources["widgets.io"] == 1
        assert journal.aside == []
        journal.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM latest",
        "UPDATE latest SET revision = 'x'",
        f"UPDATE latest SET revision = {2**63 - 1}",
        "UPDATE latest SET revision = -7",
    ],
)
def test_a_counter_that_cannot_be_read_goes_on_beyond_what_it_can_have_been(tmp_path: Path, statement: str) -> None:
    before = made(tmp_path)
    alter(tmp_path, statement)
    store, journal = open_store(tmp_path)
    assert contents(store) == before
    assert store.revision == len(before) + 1 + JUMP
    last = store.delete(POD, "default", "o1").revision
    journal.close()
    assert reopened(tmp_path)[2] == last


@pytest.mark.parametrize("statement", ["DROP TABLE objects", "DROP TABLE latest"])
def test_a_database_without_its_tables_is_refused(tmp_path: Path, statement: str) -> None:
    made(tmp_path)
    alter(tmp_path, statement)
    for _ in range(2):
        with pytest.raises(Damaged, match="its tables are gone"):
            open_store(tmp_path)


def test_a_database_that_can_only_be_read_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with (tmp_path / "state.db").open("r+b") as file:
        file.seek(18)  # the version of the format for those who write
        file.write(b"\x07")
    with pytest.raises(StateError, match="cannot be used: attempt to write a readonly database"):
        open_store(tmp_path)


def test_a_database_that_never_had_tables_is_refused(tmp_path: Path) -> None:
    alter(tmp_path, "CREATE TABLE x (a)", "DROP TABLE x")
    with pytest.raises(Damaged, match="its tables are gone"):
        open_store(tmp_path)


def test_what_is_deleted_stays_deleted_though_an_index_has_lost_it(tmp_path: Path) -> None:
    before = made(tmp_path)
    content = (tmp_path / "state.db").read_bytes()
    places = [each.start() for each in re.finditer(b"podsdefault/o0", content)]
    (in_index,) = (
        each for each in places if b"uid" not in content[each : each + 60] and b"kind" not in content[each : each + 60]
    )
    (tmp_path / "state.db").write_bytes(content[: in_index + 13] + b"/" + content[in_index + 14 :])
    store, journal = open_store(tmp_path)
    assert contents(store) == before
    store.delete(POD, "default", "o0")
    journal.close()
    assert ("pods", "default/o0") not in reopened(tmp_path)[0]


def test_of_two_rows_with_one_name_the_later_is_served(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path)
    store.create(POD, object(POD, "o0"))
    store.update(POD, object(POD, "o0", size=9))
    later = contents(store)
    journal.close()
    alter(tmp_path, "CREATE TABLE twice AS SELECT * FROM objects", "DROP TABLE objects")
    alter(tmp_path, "ALTER TABLE twice RENAME TO objects")  # as if its index had lost the row
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as connection:
        (row,) = connection.execute("SELECT * FROM objects").fetchall()
        old = row[3].replace(b'"3"', b'"2"')
        connection.execute(
            "INSERT INTO objects VALUES (?, ?, ?, ?, ?)", (*row[:2], 2, old, checksum(row[0], row[1], 2, old))
        )
    found, aside, _ = reopened(tmp_path)
    assert found == later
    assert [each.reason for each in aside] == ["a later version of it is there"]
    assert reopened(tmp_path)[:2] == (found, aside)


def test_a_database_of_the_first_version_is_read_and_gets_sums(tmp_path: Path) -> None:
    before = made(tmp_path)
    alter(
        tmp_path,
        "CREATE TABLE first (resource TEXT NOT NULL, key TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,"
        " PRIMARY KEY (resource, key))",
        "INSERT INTO first SELECT resource, key, revision, data FROM objects",
        "DROP TABLE objects",
        "ALTER TABLE first RENAME TO objects",
        "PRAGMA user_version = 1",
    )
    assert kept(tmp_path, CONFIG_MAP, "default/o0") == before["configmaps", "default/o0"]
    store, journal = open_store(tmp_path)
    assert contents(store) == before
    store.update(POD, object(POD, "o0", size=5))
    journal.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        assert connection.execute("SELECT key FROM objects WHERE sum IS NOT NULL").fetchall() == [("default/o0",)]


def test_what_is_kept_is_read_beside_damage_and_changes_nothing(tmp_path: Path) -> None:
    before = made(tmp_path)
    assert kept(tmp_path, CONFIG_MAP, "default/o0") == before["configmaps", "default/o0"]
    assert kept(tmp_path, CONFIG_MAP, "default/none") is None
    assert kept(tmp_path / "none", CONFIG_MAP, "default/o0") is None
    alter(tmp_path, "UPDATE objects SET data = x'00' WHERE resource = 'configmaps'")
    assert kept(tmp_path, CONFIG_MAP, "default/o0") is None
    (tmp_path / "state.db").write_bytes(b"")
    (tmp_path / "state.db-wal").write_bytes(b"precious")
    assert kept(tmp_path, CONFIG_MAP, "default/o0") is None
    assert (tmp_path / "state.db-wal").read_bytes() == b"precious"


# Properties

values = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20), st.text(max_size=20), st.just(LAST + 1)
)


@examples(12, 300)
@given(data=st.data(), keep_sum=st.booleans())
def test_whatever_rows_become_all_others_are_served(data: st.DataObject, keep_sum: bool) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        directory = Path(folder)
        before = made(directory, count=1)
        chosen = data.draw(st.sets(st.sampled_from(sorted(before)), min_size=1, max_size=4))
        columns = ["resource", "key", "revision", "data", *([] if keep_sum else ["sum"])]
        with closing(sqlite3.connect(directory / "state.db", isolation_level=None)) as connection:
            for resource, key in chosen:
                column = data.draw(st.sampled_from(columns))
                statement = f"UPDATE OR IGNORE objects SET {column} = ? WHERE resource = ? AND key = ?"
                try:
                    connection.execute(statement, (data.draw(values), resource, key))
                except sqlite3.IntegrityError:
                    continue  # SQLite itself lets no NULL in
        _check(directory, {name: stored for name, stored in before.items() if name not in chosen}, before)


@dataclass(frozen=True)
class Sample:
    """A state directory to damage copies of, and what is in it."""

    directory: Path
    contents: Contents = field(repr=False)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A database with several pages of each sort, some of them only in the log; few of them are free."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOOR", "STEP", "LOG"):
            patch.setattr(reserve, name, 1)
        return _sample(tmp_path_factory.mktemp("sample") / "state")


def _sample(directory: Path) -> Sample:
    store, journal = open_store(directory)
    fill(store, 4, size=900)
    journal.close()
    store, journal = open_store(directory)
    for number in range(3):
        store.update(POD, object(POD, f"o{number}", size=6_000))
    store.delete(CONFIG_MAP, "default", "o3")
    shutil.copytree(directory, directory.with_name("copy"))
    journal.close()
    return Sample(directory.with_name("copy"), contents(store))


@examples(15, 1_000)
@given(seed=st.integers(0, 2**32), log=st.booleans(), count=st.integers(1, 3))
def test_whatever_bytes_of_the_file_become_it_is_refused_or_every_object_is_as_it_was(
    sample: Sample, seed: int, log: bool, count: int
) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        directory = Path(folder) / "state"
        shutil.copytree(sample.directory, directory)
        if not log:
            open_store(directory)[1].close()  # what the log has moves to the file
        content = bytearray((directory / "state.db").read_bytes())
        for _ in range(count):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (directory / "state.db").write_bytes(content)
        _check(directory, {}, sample.contents)


@pytest.mark.parametrize("size", [300, 3_000, 6_000])
@pytest.mark.parametrize("lost", [1, 3_000, 4_095])
def test_a_file_that_is_cut_off_within_its_last_page_is_refused(tmp_path: Path, size: int, lost: int) -> None:
    store, journal = open_store(tmp_path / "state")
    for number in range(7):
        store.create(POD, object(POD, f"o{number}", size=size))
    journal.close()
    file = tmp_path / "state" / "state.db"
    file.write_bytes(file.read_bytes()[:-lost])
    with pytest.raises(Damaged, match=rf"state\.db: it is cut off after {file.stat().st_size} bytes"):
        open_store(tmp_path / "state")


@examples(15, 200)
@given(size=st.floats(0, 1))
def test_wherever_the_file_is_cut_off_it_is_refused_or_every_object_is_as_it_was(sample: Sample, size: float) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        directory = Path(folder) / "state"
        shutil.copytree(sample.directory, directory)
        open_store(directory)[1].close()
        content = (directory / "state.db").read_bytes()
        (directory / "state.db").write_bytes(content[: int(size * len(content))])
        _check(directory, sample.contents, sample.contents)


def _check(directory: Path, undamaged: Contents, before: Contents) -> None:
    """Refused for good, or all undamaged objects are served, none is changed, and none is lost."""
    try:
        found, aside, revision = reopened(directory)
    except StateError:
        with pytest.raises(StateError):
            open_store(directory)
        return
    assert sorted(name for name, data in undamaged.items() if found.get(name) != data) == [], "all are served"
    assert sorted(name for name, data in found.items() if before.get(name) != data) == [], "none is changed"
    assert len(found) + len(aside) >= len(before), "none is lost"
    assert 0 < revision <= LAST
    assert reopened(directory) == (found, aside, revision)
    store, journal = open_store(directory)
    for kind in KINDS:
        for each in store.list(kind):
            store.delete(kind, each["metadata"].get("namespace", ""), each["metadata"]["name"])
    journal.close()
    assert reopened(directory)[0] == {}, "what was deleted stays deleted"


# A full disk


def test_what_a_full_disk_refuses_has_not_happened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However SQLite meets it: not even what is kept in reserve was there."""
    store, journal = open_store(tmp_path)
    before = fill(store)
    heard: list[str] = []
    store.subscribe(lambda change: heard.append(change.type))
    connection = journal._connection
    monkeypatch.setattr(Reserve, "take", lambda *_: None)
    connection.execute("PRAGMA max_page_count = 1")
    for name, write in (("o0", store.update), ("large", store.create), ("large", store.create)):
        with pytest.raises(ApiError, match=r"state\.db cannot be written: database or disk is full; nothing was"):
            write(POD, object(POD, name, size=1_000_000))
    assert contents(store) == before
    assert heard == []
    assert len(caplog.messages) == 1, "once, however many are refused"
    connection.execute("PRAGMA max_page_count = 1000000")
    store.create(POD, object(POD, "large", size=100_000))
    assert "can be written again" in caplog.messages[-1]
    after = contents(store)
    journal.close()
    assert after.keys() - before.keys() == {("pods", "default/large")}
    assert reopened(tmp_path)[0] == after


@pytest.mark.parametrize("failing", ["DELETE", "UPDATE"])
def test_half_a_deletion_is_none(tmp_path: Path, failing: str) -> None:
    store, journal = open_store(tmp_path)
    before = fill(store)
    table = "objects" if failing == "DELETE" else "latest"
    journal._connection.execute(
        f"CREATE TEMP TRIGGER t BEFORE {failing} ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    with pytest.raises(ApiError, match="cannot be written: no"):
        store.delete(POD, "default", "o0")
    assert contents(store) == before
    journal._connection.execute("DROP TRIGGER t")
    store.delete(POD, "default", "o0")
    journal.close()
    assert reopened(tmp_path)[0].keys() == before.keys() - {("pods", "default/o0")}
