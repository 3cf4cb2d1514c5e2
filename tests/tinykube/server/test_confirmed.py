"""A server was killed, and its log is damaged or lost: the start is refused, or all that was confirmed is there."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tinykube.server import backup, confirmed
from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.server.state import Damaged, StateError
from tinykube.status import ApiError


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"text": name * 300}}


def names(directory: Path) -> set[str]:
    store, journal = open_store(directory)
    journal.close()
    return {each["metadata"]["name"] for each in store.list(POD)}


def flip(log: Path, at: int) -> None:
    with log.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def zero(log: Path) -> None:
    log.write_bytes(bytes(log.stat().st_size))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a kill leaves it, after twenty confirmed pods."""
    state = tmp_path_factory.mktemp("killed") / "state"
    store, journal = open_store(state)
    for number in range(20):
        store.create(POD, pod(f"p{number}"))
    copy = state.with_name("copy")
    shutil.copytree(state, copy)
    journal.close()
    return copy


ALL = {f"p{number}" for number in range(20)}
DAMAGE: dict[str, Callable[[Path], None]] = {
    "removed": Path.unlink,
    "emptied": lambda log: os.truncate(log, 0),
    "cut": lambda log: os.truncate(log, 20_000),
    "zeros": zero,
    "a bit of its header": lambda log: flip(log, 17),
    "a bit in the middle": lambda log: flip(log, 30_000),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_log_that_is_lost_or_damaged_is_refused_and_left_as_it_is(
    tmp_path: Path, killed: Path, damage: Callable[[Path], None]
) -> None:
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    damage(state / "state.db-wal")
    for _ in range(2):
        with pytest.raises(Damaged, match=r"state\.db-wal: (it is missing|it has|damaged)"):
            open_store(state)
        with pytest.raises(Damaged, match=r"state\.db-wal: "):
            backup.write(state, tmp_path / "file")


def test_a_damaged_frame_is_found_in_a_directory_of_an_earlier_version(tmp_path: Path, killed: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    (state / "state.db-confirmed").unlink()
    flip(state / "state.db-wal", 30_000)
    with pytest.raises(Damaged, match="changes behind it would be lost"):
        open_store(state)


def test_half_a_write_at_the_end_is_no_damage(tmp_path: Path, killed: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    log = state / "state.db-wal"
    content = log.read_bytes()
    end = 32 + -(-(len(content.rstrip(b"\0")) - 32) // 4120) * 4120
    half = struct.pack(">2I", 1, 9) + content[16:24] + b"x" * 90  # the header of a commit, and a bit of its page
    log.write_bytes(content[:end] + half + content[end + len(half) :])
    assert names(state) == ALL


def test_after_a_clean_end_nothing_is_expected(tmp_path: Path) -> None:
    store, journal = open_store(tmp_path)
    store.create(POD, pod("p"))
    assert (tmp_path / "state.db-confirmed").exists()
    journal.close()
    assert {each.name for each in tmp_path.iterdir()} == {"lock", "state.db"}
    assert names(tmp_path) == {"p"}


def test_what_a_power_loss_has_taken_is_said(
    tmp_path: Path, killed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    log = state / "state.db-wal"
    content = log.read_bytes()
    log.write_bytes(content[: 32 + 4120 * 30] + bytes(len(content) - 32 - 4120 * 30))
    monkeypatch.setattr(confirmed, "_boot", lambda: "0-1")
    assert names(state) < ALL
    assert "were confirmed, and those after" in caplog.text
    assert "the machine lost power" in caplog.text


def test_what_is_before_a_hole_of_a_power_loss_can_be_kept_by_hand(tmp_path: Path, killed: Path) -> None:
    """As the page on `subak up` says."""
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    log = state / "state.db-wal"
    flip(log, len(log.read_bytes().rstrip(b"\0")) - 10 * 4120)
    with pytest.raises(Damaged, match="changes behind it would be lost"):
        open_store(state)
    with closing(sqlite3.connect(state / "state.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (state / "state.db-confirmed").unlink()
    assert set() < names(state) < ALL


@pytest.mark.parametrize("name", ["state.db", "state.db-wal"])
def test_nothing_is_confirmed_once_a_file_is_gone(tmp_path: Path, name: str) -> None:
    store, journal = open_store(tmp_path)
    store.create(POD, pod("p"))
    (tmp_path / name).unlink()
    said = f"{name}: somebody removed or replaced it; nothing was changed: stop the cluster, but do not kill it"
    with pytest.raises(ApiError, match=said):
        store.create(POD, pod("q"))
    with pytest.raises(ApiError, match=said):
        store.delete(POD, "default", "p")
    journal.close()
    if name == "state.db":
        with pytest.raises(Damaged, match="it is missing"):
            open_store(tmp_path)
    else:
        assert names(tmp_path) == {"p"}


def test_a_mark_that_cannot_be_read_is_named(tmp_path: Path, killed: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(killed, state)
    (state / "state.db-confirmed").write_bytes(b"\xff")
    with pytest.raises(StateError, match="state.db-confirmed: it does not say how far .* remove it"):
        open_store(state)


@examples(15, 500)
@given(seed=st.integers(0, 2**32), how=st.sampled_from(["flip", "zero", "random", "swap", "cut"]))
def test_whatever_becomes_of_the_log_it_is_refused_or_all_that_was_confirmed_is_there(
    killed: Path, seed: int, how: str
) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        shutil.copytree(killed, state)
        log = state / "state.db-wal"
        content = bytearray(log.read_bytes())
        used = len(content.rstrip(b"\0"))
        at, other = chance.randrange(used), chance.randrange(used)
        if how == "flip":
            content[at] ^= 1 << chance.randrange(8)
        elif how == "cut":
            del content[at:]
        elif how == "swap":
            content[at : at + 4096], content[other : other + 4096] = (
                content[other : other + 4096],
                content[at : at + 4096],
            )
        else:
            content[at : at + 4096] = bytes(4096) if how == "zero" else chance.randbytes(4096)
        log.write_bytes(content)
        try:
            found = names(state)
        except StateError:
            return
        assert found == ALL
