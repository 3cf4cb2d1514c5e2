"""Notices: whole or not at all, alive while somebody has their pipe, and each user's own."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from pathlib import Path

import pytest

from subak.local import notices
from subak.local.notices import Board, CannotPost, Notice


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(tmp_path / "board")


def said(board: Board, *endings: str) -> list[bytes]:
    return [found.content for found in board.living(*(endings or (".word",)))]


def test_a_notice_says_what_was_posted_until_its_pipe_is_closed(board: Board) -> None:
    notice = board.post(".word", b"hello")
    assert said(board) == [b"hello"]
    inherited = os.dup(notice.pipe)
    notice.end()
    assert said(board) == [b"hello"]
    os.close(inherited)
    assert said(board) == []


def test_of_several_files_the_first_that_is_asked_for_counts(board: Board) -> None:
    notice = board.post(".word", b"first")
    notice.add(".more", b"second")
    assert said(board, ".more", ".word") == [b"second"]
    assert said(board, ".word", ".more") == [b"first"]
    notice.take_back(".more")
    assert said(board, ".more", ".word") == [b"first"]
    assert said(board, ".other") == []


def test_a_file_is_never_put_in_another_s_place(board: Board) -> None:
    notice = board.post(".word", b"first")
    with pytest.raises(FileExistsError):
        notice.add(".word", b"second")
    assert said(board) == [b"first"]
    assert {path.name for path in notice.place.iterdir()} == {"clearing", "001.alive", "001.word"}


def test_whoever_is_killed_midway_leaves_nothing_that_is_read(board: Board) -> None:
    """As by SIGKILL before a file has its name; another command takes it away when it is old."""
    place = board.post(".word", b"there").place
    begun = place / "new-0123456789abcdef"
    begun.write_bytes(b"half of i")
    board.post(".word", b"as well")
    assert begun.exists()
    assert sorted(said(board)) == [b"as well", b"there"]
    os.utime(begun, (0, 0))
    board.post(".word", b"later")
    assert not begun.exists()


def test_a_number_that_ended_lately_is_not_given_again(board: Board) -> None:
    """A late program of that command would take the new notice for its own."""
    board.post(".word", b"").end()
    second = board.post(".word", b"")
    assert (second.number, second.path(".word").name) == (2, "002.word")
    second.end()
    assert board.post(".word", b"").number == 3


def test_numbers_begin_again_after_the_last_one(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_NOTICES", 3)
    for _ in range(3):
        board.post(".word", b"").end()
    kept = board.post(".word", b"")
    assert kept.number == 1
    others = [board.post(".word", b"") for _ in range(2)]
    assert [notice.number for notice in others] == [2, 3]
    with pytest.raises(CannotPost, match="has 3 notices, and nobody reads more: end some commands"):
        board.post(".word", b"")


def test_who_clears_and_is_stopped_keeps_nobody_from_posting(board: Board) -> None:
    ended = board.post(".word", b"")
    ended.end()
    with (ended.place / "clearing").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert board.post(".word", b"new").number == 2
        assert ended.alive.exists()
    board.post(".word", b"newer")
    assert not ended.alive.exists()


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_something_else_under_the_usual_name_is_no_obstacle(board: Board, tmp_path: Path, kind: str) -> None:
    usual = tmp_path / f"board-{os.getuid()}"
    match kind:
        case "file":
            usual.touch()
        case "link":
            (tmp_path / "private").mkdir(mode=0o700)
            usual.symlink_to("private")
        case "pipe":
            os.mkfifo(usual)
    first, second = board.post(".word", b"one"), board.post(".word", b"two")
    assert first.place == second.place != usual
    assert said(board) == [b"one", b"two"]
    if kind == "link":
        assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
        assert not list((tmp_path / "private").iterdir())


def test_a_directory_that_is_not_its_user_s_says_nothing(board: Board, tmp_path: Path) -> None:
    notice = board.post(".word", b"mine")
    notice.place.rename(tmp_path / f"board-{os.getuid() + 1}")
    assert said(board) == []


def strange_word(notice: Notice, kind: str) -> None:
    path = notice.path(".word")
    path.unlink()
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("001.word")
        case "socket":
            os.mknod(path, stat.S_IFSOCK)  # its path may be too long to bind a socket to
        case "huge":
            path.touch()
            os.truncate(path, 1 << 42)


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "socket", "huge"])
def test_what_is_no_file_of_a_decent_size_says_nothing(board: Board, kind: str) -> None:
    board.post(".word", b"sense")
    strange_word(board.post(".word", b"nonsense"), kind)
    assert said(board) == [b"sense"]
    board.post(".word", b"more sense")
    assert said(board) == [b"sense", b"more sense"]


def test_of_one_user_no_more_is_read_than_a_user_may_post(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many directories he has: somebody else must go through all that is read."""
    monkeypatch.setattr(notices, "MOST_NOTICES", 3)
    posted = [board.post(".word", b"word") for _ in range(2)]
    for number in range(3):
        another = posted[0].place.with_name(f"{posted[0].place.name}-{number:08}")
        another.mkdir()
        for path in posted[0].place.iterdir():
            os.link(path, another / path.name)
    assert said(board) == [b"word"] * 3


def test_a_long_notice_counts_as_several(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_NOTICES", 4)
    words = [b"x" * (2 * notices.USUAL_BYTES), b"short", b"too much"]
    for word in words:
        board.post(".word", word)
    assert said(board) == words[:2]


def test_a_directory_of_many_files_is_not_read_to_its_end(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_FILES", 6)
    for _ in range(4):
        board.post(".word", b"word")
    assert len(said(board)) <= 3


def test_files_that_are_no_directories_are_not_looked_at(
    board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger may make any number of them in /tmp."""
    notice = board.post(".word", b"hello")
    for number in range(50):
        (tmp_path / f"board-{100_000 + number}").touch()
        (tmp_path / f"board-{200_000 + number}").symlink_to(tmp_path)
    looked: list[Path] = []
    owner = notices._owner

    def look(place: Path) -> int | None:
        looked.append(place)
        return owner(place)

    monkeypatch.setattr(notices, "_owner", look)
    assert said(board) == [b"hello"]
    assert looked == [notice.place]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_pipe_is_not_alive(board: Board, kind: str) -> None:
    living, dead = board.post(".word", b"living"), board.post(".word", b"dead")
    dead.alive.unlink()
    match kind:
        case "file":
            dead.alive.touch()
        case "directory":
            dead.alive.mkdir()
        case "link":
            dead.alive.symlink_to(living.alive)
    assert said(board) == [b"living"]
    board.post(".word", b"more")
    assert said(board) == [b"living", b"more"]


def test_a_leased_file_is_not_waited_for(board: Board) -> None:
    """Its owner could make every reader wait for 45 s, by a lease that he does not give up."""
    other = board.post(".word", b"other")
    file = os.open(other.path(".word"), os.O_RDWR)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert said(board) == []
    finally:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, before)
        os.close(file)


def test_without_descriptors_nobody_takes_others_for_dead(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    board.post(".word", b"living")

    def none_left(*arguments: object, **more: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(CannotPost, match="cannot be used: Too many open files"):
        said(board)
