"""Whose a state directory is, and whether anything was kept there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tinykube.server.kinds import POD
from tinykube.server.sqlite import open_store
from tinykube.server.state import Damaged, StateDirectory, StateError


def used(directory: Path) -> Path:
    """A directory in which a server has kept a pod, beside an identity."""
    store, journal = open_store(directory, beside=["identity"])
    store.create(POD, {"metadata": {"namespace": "default", "name": "p"}})
    (directory / "identity").mkdir()
    journal.close()
    return directory


@pytest.mark.parametrize("size", [0, 1, 15, 16, 99])
@pytest.mark.parametrize("beside", [["identity"], []])
def test_a_database_that_was_emptied_or_cut_off_is_not_a_new_one(tmp_path: Path, size: int, beside: list[str]) -> None:
    state = used(tmp_path / "state")
    if not beside:
        (state / "identity").rmdir()
    os.truncate(state / "state.db", size)
    for _ in range(2):
        with pytest.raises(
            Damaged, match=r"state\.db: (it is empty|it is cut off|not readable: file is not a database)"
        ):
            open_store(state, beside=["identity"])
        assert (state / "state.db").stat().st_size == size


def test_what_only_the_write_ahead_log_has_is_not_removed_with_an_emptied_database(tmp_path: Path) -> None:
    state = tmp_path / "state"
    store, journal = open_store(state)
    store.create(POD, {"metadata": {"namespace": "default", "name": "p"}})
    log = (state / "state.db-wal").read_bytes()
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "state.db").touch()
    (copy / "state.db-wal").write_bytes(log)
    journal.close()
    with pytest.raises(Damaged, match="it is empty"):
        open_store(copy)
    assert log
    assert (copy / "state.db-wal").read_bytes() == log


@pytest.mark.parametrize("left", ["identity", "state.db-wal", "machine"])
def test_a_directory_that_lost_its_database_is_not_new(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir()
    for _ in range(2):
        with pytest.raises(Damaged, match=f"it is missing, though other things of a cluster are there: {left}"):
            open_store(tmp_path, beside=["identity", "machine"])


def test_a_start_that_was_killed_before_the_database_was_whole_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "state.db.new").write_bytes(b"half of a database")
    store, journal = open_store(tmp_path)
    assert store.list(POD) == []
    journal.close()
    assert {each.name for each in tmp_path.iterdir()} == {"lock", "state.db"}


@pytest.mark.parametrize("name", ["lock", "state.db", "state.db-wal", "state.db.new"])
def test_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    state = tmp_path / "state"
    state.mkdir()
    (state / name).symlink_to(victim)
    with pytest.raises(StateError, match=f"{name}: .*it is a link"):
        open_store(state)
    assert victim.read_text() == "precious"
    assert victim.stat().st_mode & 0o777 == 0o644


def test_a_pipe_in_the_place_of_the_lock_does_not_hang_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(StateError, match="it is no plain file"):
        open_store(tmp_path)


def test_a_directory_in_which_everybody_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StateError, match="every user can write to it; choose a directory of your own"):
        StateDirectory(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("name", ["", "lock", "state.db"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / (name or "lock")).touch()
    os.chown(tmp_path / name, 65534, 65534)
    with pytest.raises(StateError, match="it belongs to another user"):
        open_store(tmp_path)


def test_a_directory_whose_lock_was_removed_is_still_in_use(tmp_path: Path) -> None:
    _, journal = open_store(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(StateError, match="in use by another process"):
        open_store(tmp_path)
    journal.close()
    open_store(tmp_path)[1].close()


def test_a_pipe_in_the_place_of_the_database_does_not_hang_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.db")
    with pytest.raises(StateError, match=r"state\.db: it is no plain file"):
        open_store(tmp_path)
