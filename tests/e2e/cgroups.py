"""Groups of processes for a real node, one in each hierarchy of cgroup v1."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PATIENCE = 60.0


class StillThere(Exception):
    """A group has processes that do not end."""


def hierarchies() -> list[Path]:
    """Where groups can be made; empty if this machine has no cgroup v1."""
    if not all((ROOT / each).is_dir() for each in ("memory", "devices", "pids")):
        return []
    return [path for path in sorted(ROOT.iterdir()) if path.is_dir() and not path.is_symlink()]


def make(name: str) -> None:
    """Make a group in all hierarchies."""
    for hierarchy in hierarchies():
        (hierarchy / name).mkdir()
    for setting in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then no process can enter it
        (ROOT / "cpuset" / name / setting).write_text((ROOT / "cpuset" / setting).read_text())


def found(name: str) -> list[Path]:
    """The groups of this name that there are."""
    return sorted(ROOT.glob(f"*/{name}"))


def remove(name: str) -> None:
    """Remove groups with all below, as soon as the kernel has buried the last process in them."""
    deadline = time.monotonic() + PATIENCE
    while left := found(name):
        if time.monotonic() > deadline:
            raise StillThere(f"processes that have been killed are still in {', '.join(map(str, left))}")
        for top in left:
            for path, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        time.sleep(0.02)
