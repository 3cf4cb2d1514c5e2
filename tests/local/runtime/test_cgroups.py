"""Where cgroups are made, on machines that are described by files."""

from __future__ import annotations

from pathlib import Path

import pytest

from subak.local.runtime.cgroups import Cgroups, NoCgroups, Place, places

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
