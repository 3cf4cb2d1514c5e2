"""The directory in which all programs on the machine's cards take turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from subak.node import turns
from tests.support import users


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBAK_TURNS", str(tmp_path / "turns"))
    return tmp_path / "turns"


def test_everybody_may_write_there(place: Path) -> None:
    old = os.umask(0o077)
    try:
        assert turns.directory() == place
    finally:
        os.umask(old)
    assert place.stat().st_mode & 0o7777 == 0o1777


def test_one_that_is_there_is_opened_to_all_if_it_is_ours(place: Path) -> None:
    place.mkdir(0o700)
    assert turns.directory().stat().st_mode & 0o7777 == 0o1777


def test_one_that_all_may_use_stays_as_it_is(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)
    assert turns.directory().stat().st_mode & 0o7777 == 0o777


@pytest.mark.parametrize("what", ["file", "link to nowhere", "link"])
def test_what_is_no_directory_is_refused(place: Path, what: str) -> None:
    (place.parent / "other").mkdir()
    match what:
        case "file":
            place.touch()
        case "link to nowhere":
            place.symlink_to("nowhere")
        case "link":
            place.symlink_to("other")
    with pytest.raises(turns.NoTurns, match="turns, where programs take turns on the cards, "):
        turns.directory()


@users.alone
@pytest.mark.parametrize("owner", [0, users.STRANGER])
def test_it_is_told_whether_another_user_has_spoiled_it(place: Path, owner: int) -> None:
    place.touch()
    os.chown(place, owner, owner)
    with pytest.raises(turns.NoTurns) as refused:
        turns.directory()
    assert isinstance(refused.value, turns.Spoiled) == (owner == users.STRANGER)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_one_that_is_not_ours_to_write_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBAK_TURNS", "/usr")
    with pytest.raises(turns.NoTurns, match="is not ours to write: chmod 1777 /usr"):
        turns.directory()


def test_a_directory_that_becomes_a_link_meanwhile_opens_nothing_else(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As whoever made it can do, between two looks of another user."""
    place.mkdir(0o700)
    other = place.parent / "other"
    other.mkdir(0o700)
    user = os.geteuid()

    def swapping() -> int:
        if not place.is_symlink():
            place.rename(place.with_name("away"))
            place.symlink_to(other)
        return user

    monkeypatch.setattr(os, "geteuid", swapping)
    turns.directory()
    assert place.is_symlink()
    assert other.stat().st_mode & 0o7777 == 0o700
