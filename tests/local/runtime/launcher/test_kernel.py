"""What only older kernels need, tried in namespaces of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[4] / "src/subak/local/runtime"

# /proc/acpi and the like are left as they are: what counts is what lies below the one directory.
PROGRAM = """
import os, sys
sys.path.append(sys.argv[1])
from launcher import kernel
user, group = os.geteuid(), os.getegid()
kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNT)
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
    open(f"/proc/self/{name}", "w").write(text)
kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
place = sys.argv[2]
kernel.mount("tmpfs", place, "tmpfs", kernel.NO_EXEC)
os.mkdir(place + "/a b")
kernel.mount("tmpfs", place + "/a b", "tmpfs")
os.mkdir(place + "/a b/c")
kernel.bind(place + "/a b/c", place + "/a b/c")
kernel.restrict_each(place, kernel.READ_ONLY | kernel.NO_SUID)
for path in (place, place + "/a b", place + "/a b/c"):
    flags = os.statvfs(path).f_flag
    print(bool(flags & os.ST_RDONLY), bool(flags & os.ST_NOSUID), bool(flags & os.ST_NOEXEC))
"""


def test_mounts_are_restricted_one_by_one_where_the_kernel_cannot_do_all_at_once(able: None, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(SOURCES), str(tmp_path)], capture_output=True, text=True
    )
    assert finished.stdout.splitlines() == ["True True True", "True True False", "True True False"], finished.stderr


def test_the_whole_machine_can_be_restricted_one_by_one(able: None) -> None:
    program = (
        PROGRAM.split("place =")[0] + "kernel.restrict_each('/', kernel.READ_ONLY)\nprint(os.statvfs('/').f_flag & 1)"
    )
    finished = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(SOURCES)], capture_output=True, text=True)
    assert finished.stdout == "1\n", finished.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do this")
def test_an_error_names_the_call_and_the_place(tmp_path: Path) -> None:
    program = PROGRAM.split("user, group =")[0] + "kernel.mount('tmpfs', '/tmp', 'tmpfs')"
    finished = subprocess.run([sys.executable, "-I", "-S", "-c", program, str(SOURCES)], capture_output=True, text=True)
    assert "mount tmpfs at /tmp: Operation not permitted" in finished.stderr
