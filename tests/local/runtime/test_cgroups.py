"""Where cgroups are made, on machines that are described by files."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from subak.local.runtime.cgroups import Cgroup, Cgroups, NoCgroups, Place, places
from subak.local.runtime.container import Confined

UNIFIED = "25 1 0:22 / {root} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
SEPARATE = "3{index} 31 0:3{index} {shown} {root}/{name} rw,relatime - cgroup cgroup rw,{name}\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc"


def machine(proc: Path, cgroup: str, mounts: str) -> Path:
    (proc / "self" / "cgroup").write_text(cgroup)
    (proc / "self" / "mountinfo").write_text("23 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n" + mounts)
    return proc


def hands_down(directory: Path, controllers: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.subtree_control").write_text(controllers)
    return directory


def test_of_version_2_the_nearest_that_hands_both_controllers_down(proc: Path, tmp_path: Path) -> None:
    root = hands_down(tmp_path / "sys", "cpu memory pids\n")
    slice = hands_down(root / "user.slice", "memory pids\n")
    hands_down(slice / "session-3.scope", "\n")
    machine(proc, "0::/user.slice/session-3.scope\n", UNIFIED.format(root=root))
    (place,) = places(proc)
    assert place == Place(slice, frozenset({"memory", "pids"}), unified=True)


def test_of_version_2_our_own_if_it_may_begin_to_hand_them_down(proc: Path, tmp_path: Path) -> None:
    own = hands_down(tmp_path / "sys", "")
    machine(proc, "0::/\n", UNIFIED.format(root=own))
    assert [place.directory for place in places(proc)] == [own]
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_of_version_1_our_own_in_the_tree_of_each_controller(proc: Path, tmp_path: Path) -> None:
    mounts = SEPARATE.format(index=1, shown="/", root=tmp_path, name="memory")
    mounts += SEPARATE.format(index=2, shown="/docker/a", root=tmp_path, name="pids")
    machine(proc, "4:memory:/job\n8:pids:/docker/a/b\n0::/\n", mounts)
    assert places(proc) == [
        Place(tmp_path / "memory/job", frozenset({"memory"}), unified=False),
        Place(tmp_path / "pids/b", frozenset({"pids"}), unified=False),
    ]


def test_a_stranger_who_locks_a_new_one_keeps_nobody_waiting(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers: list[int] = []
    make = Path.mkdir

    def make_and_lock(path: Path) -> None:
        make(path)
        if not strangers:
            strangers.append(os.open(path, os.O_RDONLY))
            fcntl.flock(strangers[0], fcntl.LOCK_EX)

    machine(proc, "0::/\n", UNIFIED.format(root=hands_down(tmp_path / "sys", "memory pids\n")))
    monkeypatch.setattr(Path, "mkdir", make_and_lock)
    cgroups = Cgroups(proc)
    assert cgroups.obstacle == ""
    assert len(list((tmp_path / "sys").glob("subak-*"))) == 1
    cgroups.close()
    os.close(strangers[0])


@pytest.mark.parametrize(
    ("cgroup", "mounts", "why"),
    [
        ("", "", "none are mounted for memory and pids"),
        ("4:memory:/\n", SEPARATE.format(index=1, shown="/", root="/nowhere", name="memory"), "mounted for pids"),
        ("0::/\n", UNIFIED.format(root="/nowhere"), "/nowhere/cgroup.subtree_control: No such file"),
    ],
)
def test_why_there_are_none(proc: Path, cgroup: str, mounts: str, why: str) -> None:
    machine(proc, cgroup, mounts)
    with pytest.raises(NoCgroups, match=why):
        places(proc)
    assert why in Cgroups(proc).obstacle
    assert Cgroups(proc).make(1 << 20) is None


def two_trees(proc: Path, root: Path) -> None:
    mounts = "".join(
        SEPARATE.format(index=index, shown="/", root=root, name=name) for index, name in enumerate(("memory", "pids"))
    )
    machine(proc, "4:memory:/\n8:pids:/\n0::/\n", mounts)
    for name in ("memory", "pids"):
        (root / name).mkdir()


def test_what_was_made_in_one_tree_goes_if_the_other_has_no_memory(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_trees(proc, tmp_path)
    cgroups, usual = Cgroups(proc), Path.mkdir
    assert not cgroups.obstacle

    def refuse(self: Path, *args: Any, **options: Any) -> None:
        if self.is_relative_to(tmp_path / "pids"):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(self))
        usual(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        cgroups.make(1 << 20)
    monkeypatch.undo()
    assert [*(tmp_path / "memory").glob("*/*")] == []
    cgroups.close()


def test_half_of_the_limits_does_not_pass_for_all_of_them(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_trees(proc, tmp_path)
    cgroups, usual = Cgroups(proc), os.open

    def refuse(path: Any, *args: Any, **options: Any) -> int:
        if Path(path).is_relative_to(tmp_path / "pids"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return usual(path, *args, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        cgroups.make(1 << 20)
    monkeypatch.undo()
    made = cgroups.make(1 << 20)
    assert made is not None
    assert {each.parents[1].name for each in made.directories} == {"memory", "pids"}
    assert len([*tmp_path.glob("memory/*")]) == len([*tmp_path.glob("pids/*")]) == 1
    cgroups.close()


@pytest.mark.parametrize("lacks", ["a socket", "an entrance"])
async def test_a_container_that_finds_no_descriptor_leaves_neither_its_cgroup_nor_an_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "cgroup.procs").touch()
    (tmp_path / "pids").mkdir()  # without the file by which processes enter

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    if lacks == "a socket":
        monkeypatch.setattr(socket, "socketpair", refuse)
    order: Any = {"program": {}}
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many open files" if lacks == "a socket" else "No such file"):
        Confined(order, Cgroup((tmp_path / "memory", tmp_path / "pids"), []))
    assert set(os.listdir("/proc/self/fd")) == before
    assert not (tmp_path / "pids").exists()
