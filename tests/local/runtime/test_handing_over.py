"""What earlier versions left is given to the users of containers, and nothing else is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subak.local.runtime.launcher import ids
from subak.local.runtime.ownership import hand_over, inherited
from subak.node import trees
from tests.support.nobody import possible

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has only the one id, and always had it")

USER = (7, 8)


def owners(*paths: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in paths}


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "volume"
    made.mkdir()
    yield made
    trees.remove(made)  # pytest does not remove what is very deep


def test_everything_in_a_directory_is_handed_over_once(volume: Path) -> None:
    (volume / "a" / "b").mkdir(parents=True)
    (volume / "a" / "c").mkdir()
    for place in ("file", "a/file", "a/b/file", "a/c/file"):
        (volume / place).write_text("x")
    (volume / "pipe").symlink_to("nowhere")
    os.link(volume / "file", volume / "a" / "second")
    os.mkfifo(volume / "a" / "b" / "fifo")
    (volume / "file").chmod(0o4755)
    (volume / "a" / "mine").mkdir(mode=0o700)
    os.chown(volume / "a" / "mine", *ids.of(1000, 1000))
    assert inherited(volume)
    hand_over(volume, USER)
    everything = {volume, *volume.rglob("*")}
    assert owners(*everything - {volume / "a" / "mine"}) == {ids.of(*USER)}
    assert owners(volume / "a" / "mine") == {ids.of(1000, 1000)}, "whoever has a file of his own keeps it"
    assert (volume / "file").stat().st_mode & 0o7777 == 0o755, "nobody gets a setuid program"
    assert not inherited(volume)


def test_nothing_that_has_a_name_elsewhere_is(volume: Path, tmp_path: Path) -> None:
    """Through a link or a second name, files of the machine would be given away."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    (outside / "linked").write_text("x")
    (volume / "link").symlink_to(outside)
    (volume / "to-file").symlink_to(outside / "secret")
    os.link(outside / "linked", volume / "twice")
    hand_over(volume, USER)
    assert owners(outside, *outside.iterdir()) == {(0, 0)}
    assert owners(volume, volume / "link", volume / "to-file") == {ids.of(*USER)}


def test_a_directory_that_is_deeper_than_any_path(volume: Path) -> None:
    here = os.open(volume, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    hand_over(volume, USER)
    assert (os.fstat(here).st_uid, os.fstat(here).st_gid) == ids.of(*USER)
    os.close(here)


MOUNTED = """
import os, subprocess, sys
from pathlib import Path
from subak.local.runtime.ownership import hand_over
volume, other = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run(["mount", "--bind", other, volume / "some where"], check=True)
try:
    hand_over(volume, (0, 0))
except OSError as error:
    print(error.strerror)
print(other.stat().st_uid, volume.stat().st_uid)
"""


def test_a_volume_in_which_something_is_mounted_is_left_as_it_is(volume: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for directory in (other, volume / "some where"):
        directory.mkdir()
    if not possible():
        pytest.skip("there is no unshare on this machine")
    command = ["unshare", "--mount", sys.executable, "-c", MOUNTED, str(volume), str(other)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert said == ["is from an earlier version, and not handed over while something is mounted there", "0 0"]


def test_what_cannot_be_given_away_leaves_nothing_open(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file that nobody may change (`chattr +i`): the pod tries again and again."""
    (volume / "a").mkdir()
    (volume / "a" / "file").write_text("x")
    usual = os.chown

    def refuse(path: str, *args: int, **options: Any) -> None:
        if path == "file":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        usual(path, *args, **options)

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(PermissionError):
        hand_over(volume, USER)
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert [each for each in opened if each.startswith(str(volume))] == []
    assert inherited(volume), "it is tried again"
