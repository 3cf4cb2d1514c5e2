"""A full disk: what is there can be changed and deleted, and only what is new must wait."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import Disk, small_disk
from tinykube.server import reserve
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.server.state import StateError
from tinykube.status import ApiError

ON_A_FULL_DISK = """
import json, os, sys
from itertools import count
from pathlib import Path
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.status import ApiError

def pod(name, text):
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"text": text}}

store, journal = open_store(Path(sys.argv[1]) / "state")
store.create(POD, pod("early", "x"))
def fill():
    with open(Path(sys.argv[1]) / "hog", "ab", 0) as hog:
        try:
            while True:
                hog.write(bytes(4096))
        except OSError as error:
            return error.strerror

print(fill())

def until_refused(kind):
    for number in count():
        try:
            store.create(POD, pod(f"{kind}{number}", "x" * 3000))
        except ApiError as error:
            return number, error.message

first, why = until_refused("a")
for turn in range(20):  # much more than the log holds at once
    for number in range(first):
        store.update(POD, pod(f"a{number}", f"{turn} " + "y" * 3000))
for number in range(first):
    store.delete(POD, "default", f"a{number}")
    fill()  # somebody waits for any room
again, _ = until_refused("b")
print(json.dumps([first, again, why, sorted(each["metadata"]["name"] for each in store.list(POD))]))
sys.stdout.flush()
os._exit(0)  # as if it were killed
"""

AFTERWARDS = """
import sys
from pathlib import Path
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.status import ApiError

store, journal = open_store(Path(sys.argv[1]) / "state")
pods = store.list(POD)
for size in range(0, 60_000, 3_000):  # each grows a little, until there is no page left
    for each in pods:
        try:
            store.update(POD, {"metadata": each["metadata"], "spec": {"text": "z" * size}})
        except ApiError:
            pass
for each in pods:
    print(each["metadata"]["name"])
    store.delete(POD, "default", each["metadata"]["name"])
"""

STOPPED_BEFORE = """
import sys
from pathlib import Path
from tinykube.server.sqlite import open_store
from tinykube.server.state import StateError

directory = Path(sys.argv[1]) / "state"
open_store(directory)[1].close()
with open(directory.with_name("hog"), "ab", 0) as hog:
    try:
        while True:
            hog.write(bytes(4096))
    except OSError:
        pass
try:
    open_store(directory)
except StateError as error:
    print(error)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 12) as made:
        yield made


def run(disk: Disk, code: str) -> list[str]:
    command = [*disk.inside, sys.executable, "-c", code, str(disk.path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def test_whoever_deletes_makes_room_though_the_disk_stays_full(disk: Disk) -> None:
    full, said = run(disk, ON_A_FULL_DISK)
    first, again, why, names = json.loads(said)
    assert full == "No space left on device"
    assert "state.db cannot grow: No space left on device; nothing was changed: delete something" in why
    assert first > 0
    assert again >= first, "what was deleted has made room for as many"
    assert names == sorted(["early", *(f"b{number}" for number in range(again))])
    assert run(disk, AFTERWARDS) == names, "it is there after a restart"


def test_a_start_that_finds_no_room_says_so(disk: Disk) -> None:
    (said,) = run(disk, STOPPED_BEFORE)
    assert said == f"{disk.path}/state/state.db: there is no room on the disk: make some, and try again"


def pod(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"text": "x" * size}}


def fill_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing were left in the file, and the disk gave no more."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(reserve, "FLOOR", 10_000)
    monkeypatch.setattr(os, "posix_fallocate", refuse)


def test_what_is_there_may_grow_a_little_and_what_is_new_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, journal = open_store(tmp_path)
    store.create(POD, pod("p", 600_000))
    store.update(POD, pod("p", 100))
    fill_up(monkeypatch)
    store.update(POD, pod("p", 4_000))
    for write, refused in ((store.update, pod("p", 900_000)), (store.create, pod("q", 1)), (store.create, pod("q", 1))):
        with pytest.raises(ApiError, match="cannot grow: No space left on device; nothing was changed") as error:
            write(POD, refused)
        assert error.value.code == 500
    store.update(POD, pod("p", 10))
    assert [each["metadata"]["name"] for each in store.list(POD)] == ["p"]
    monkeypatch.undo()
    store.create(POD, pod("q", 3_000_000))
    assert [message.partition("state.db")[2] for message in caplog.messages] == [
        " cannot grow: No space left on device; nothing new is kept until there is room",
        ": there is room again",
    ]
    journal.close()


def test_room_is_taken_in_steps_and_used_up(tmp_path: Path) -> None:
    """Nothing is left of the rows by which the database grows, and the file is sound."""
    store, journal = open_store(tmp_path)
    for number in range(300):
        store.create(POD, pod(f"p{number}", 5_000))
    store.create(POD, pod("large", 3_000_000))
    journal.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        assert connection.execute("SELECT count(*) FROM objects").fetchone() == (301,)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    assert reserve.FLOOR <= free <= reserve.FLOOR + reserve.STEP + 10


def test_a_start_that_finds_no_descriptor_says_so_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(tmp_path)[1].close()
    usual = os.open

    def refuse(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if str(path).endswith("state.db"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return usual(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StateError, match="cannot keep state here: .*Too many open files"):
        open_store(tmp_path)
    monkeypatch.undo()
    held = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert [each for each in held if each.startswith(str(tmp_path))] == []
    open_store(tmp_path)[1].close()
