"""Where our agent keeps files on the host, and where programs take turns on cards."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from subak.dialects import isolation
from subak.doctor import Finding, failed, ok, unknown, warning
from subak.doctor.node import Computer

FOLDERS = {
    isolation.HOST_DIRECTORY.rpartition("/")[0]: True,
    isolation.HOST_LIMITS.rpartition("/")[0]: False,
    f"{isolation.HOOK}/containers": False,
}
"""The agent's folders; whether programs load a library from there."""
LEAST_FREE = 64 << 20
"""Bytes: a region of a container has 3 MiB."""


async def writable(computer: Computer) -> Sequence[Finding]:
    """Whether the agent can write where it must."""
    return [each for path, code in FOLDERS.items() for each in _folder(computer, path, code)] or [
        ok(f"{', '.join(FOLDERS)} can be written")
    ]


def _folder(computer: Computer, path: str, code: bool) -> Iterator[Finding]:
    place = _existing(computer.at(path))
    if not place.is_dir():
        yield failed(f"{place} is no directory, and {path} must be one", f"remove it: rm {place}")
        return
    about = os.statvfs(place)
    if about.f_flag & os.ST_RDONLY and computer.root != Path("/"):
        yield unknown(f"{path} is seen through a mount that is read-only")
    elif about.f_flag & os.ST_RDONLY:
        yield failed(f"{path} is on a read-only file system", f"mount something writable there, as a tmpfs: {path}")
    elif not os.access(place, os.W_OK | os.X_OK):
        yield failed(f"{path}: this user may not write there", "run the agent, and this command, as root")
    if code and about.f_flag & os.ST_NOEXEC:
        seen = f"{path} is on a file system without programs (noexec): containers cannot load libsubak from there"
        yield failed(seen, f"mount it with exec: mount -o remount,exec {place}")
    if about.f_bavail * about.f_frsize < LEAST_FREE:
        free = about.f_bavail * about.f_frsize >> 20
        yield warning(f"{path} has {free} MiB left", "make room: containers with cards would not start")


def _existing(path: Path) -> Path:
    """The path, or the nearest of its parents that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


async def turns(computer: Computer) -> Sequence[Finding]:
    """Whether all programs can take turns on cards."""
    path = computer.at(isolation.LOCKS)
    try:
        found = path.lstat()
    except FileNotFoundError:
        return [ok(f"{isolation.LOCKS} is made when it is first needed")]
    if not stat.S_ISDIR(found.st_mode):
        return [failed(f"{isolation.LOCKS} is no directory", f"remove it: rm {isolation.LOCKS}")]
    if found.st_mode & 0o777 != 0o777:
        seen = f"{isolation.LOCKS} has the mode {stat.S_IMODE(found.st_mode):o}: not every container can take turns"
        return [warning(seen, f"the agent corrects it for the next container; at once: chmod 1777 {isolation.LOCKS}")]
    return [ok(f"{isolation.LOCKS} is open to everybody")]


async def preload(computer: Computer) -> Sequence[Finding]:
    """Whether the host itself preloads libraries: those that limit cards belong into containers only."""
    said = computer.text(isolation.PRELOAD)
    libraries = [] if said is None else said.replace(":", " ").split()
    ours = [each for each in libraries if Path(each).name in ("libvgpu.so", "libsubak.so")]
    if ours:
        seen = f"{isolation.PRELOAD} of the host itself names {', '.join(ours)}: every program of the host is limited"
        return [failed(seen, f"remove that line from {isolation.PRELOAD}; only containers get it, by a mount")]
    gone = [each for each in libraries if each.startswith("/") and not computer.at(each).exists()]
    if gone:
        seen = f"{isolation.PRELOAD} names {', '.join(gone)}, which is not there: every program complains"
        return [warning(seen, "remove that line, if nobody needs it")]
    return [ok(f"{isolation.PRELOAD} names {', '.join(libraries)}" if libraries else "nothing")]
