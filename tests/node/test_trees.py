from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from subak.node import trees
from subak.node.trees import discard, remove
from tests.support import fuzz
from tests.support.nobody import NOBODY, as_nobody, possible

MS_BIND = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def deep(top: Path, depth: int, name: str = "d") -> None:
    """Directories in one another, deeper than any path can name."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_tree_goes_even_if_a_container_locked_it(tmp_path: Path) -> None:
    locked = tmp_path / "pod" / "volume" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    (locked / "link").symlink_to("/etc/passwd")
    for path in (locked / "file", locked, locked.parent, locked.parent.parent):
        path.chmod(0)
    remove(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()
    assert Path("/etc/passwd").exists()


def test_files_and_links_go_and_what_a_link_means_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").touch()
    remove(tmp_path / "link", tmp_path / "file", tmp_path / "missing")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_nested_directories_go_with_few_descriptors(tmp_path: Path) -> None:
    deep(tmp_path / "pod", 3_000 if fuzz.long() else 1_100)  # more than Python recurses
    with few_descriptors(8):
        remove(tmp_path / "pod")
    assert list(tmp_path.iterdir()) == []


def test_a_tree_deeper_than_any_path_goes(tmp_path: Path) -> None:
    deep(tmp_path / "pod", 60, "n" * 250)
    remove(tmp_path / "pod")
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_text_go(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/pod/\xff\xfe"
    os.makedirs(odd + b"/\n/\x80")
    with open(odd + b"/-rf \xc3\x28", "wb"):
        pass
    remove(tmp_path / "pod")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_goes_too(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    os.mkfifo(tmp_path / "pod" / "pipe")
    os.mkfifo(tmp_path / "pipe")
    remove(tmp_path / "pod", tmp_path / "pipe")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_becomes_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks of ours, somebody puts a link to a directory of others in the place of one of the tree."""
    kept = tmp_path / "kept"
    for path in (kept / "below", tmp_path / "pod" / "a" / "victim" / "below"):
        path.mkdir(parents=True)
    rename = os.rename
    swapped: list[str] = []

    def swapping(name: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if name == "victim" and not swapped:
            rename(name, "away", src_dir_fd=src_dir_fd, dst_dir_fd=src_dir_fd)
            os.symlink(kept, name, dir_fd=src_dir_fd)
            swapped.append(name)
        rename(name, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", swapping)
    discard(tmp_path / "pod")
    monkeypatch.undo()
    remove(tmp_path / "pod")
    assert swapped
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "below").is_dir()


def test_what_cannot_be_removed_is_named_and_all_else_goes(tmp_path: Path) -> None:
    mounted, outside = tmp_path / "pod" / "volume" / "a" / "mounted", tmp_path / "outside"
    for path in (mounted, tmp_path / "pod" / "volume" / "b", outside):
        path.mkdir(parents=True)
    for path in (outside, mounted.parent, tmp_path / "pod" / "volume" / "b"):
        (path / "file").touch()
    if _libc.mount(os.fsencode(outside), os.fsencode(mounted), None, MS_BIND, None):
        pytest.skip(f"this user cannot mount: {os.strerror(ctypes.get_errno())}")
    try:
        with pytest.raises(OSError, match="mounted"):
            remove(tmp_path / "pod")
        left = [path for path in (tmp_path / "pod").rglob("*") if path.name == "file"]
        assert [path.parent.stat().st_ino for path in left] == [outside.stat().st_ino]
        assert (outside / "file").exists(), "what is mounted belongs to somebody else"
    finally:
        for path in (tmp_path / "pod").rglob("mounted*"):
            _libc.umount2(os.fsencode(path), 0)
    remove(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()


def test_two_may_remove_the_same(tmp_path: Path) -> None:
    for number in range(10):
        for branch in range(30):
            (tmp_path / "pod" / str(branch) / "a" / "b" / "c").mkdir(parents=True)
        others = [Thread(target=discard, args=(tmp_path / "pod",)) for _ in range(number % 3 + 1)]
        for each in others:
            each.start()
        discard(tmp_path / "pod")
        for each in others:
            each.join()
        remove(tmp_path / "pod")
        assert list(tmp_path.iterdir()) == []


def test_nobody_waits_for_what_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pod" / "below").mkdir(parents=True)
    go_on, done = Event(), Event()

    def slow(path: Path) -> None:
        go_on.wait(60)
        discard(path)
        done.set()

    monkeypatch.setattr(trees, "discard", slow)
    trees.throw_away(tmp_path / "pod")
    assert not (tmp_path / "pod").exists()
    (aside,) = tmp_path.iterdir()
    assert trees.is_leaving(aside)
    go_on.set()
    assert done.wait(60)
    assert list(tmp_path.iterdir()) == []
    trees.throw_away(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_an_ordinary_user_can_do_the_same() -> None:
    if os.geteuid() != 0 or not possible():
        pytest.skip("only root can become another user, with setpriv and unshare")
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, NOBODY, NOBODY)
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={directory}/tests"]
        env = {"PATH": os.environ["PATH"], "HOME": directory, "TMPDIR": directory}
        command = as_nobody(*tests, "-rs", __file__)
        ran = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout
