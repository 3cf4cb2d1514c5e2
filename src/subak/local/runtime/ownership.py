"""Whose the files are that we make for containers.

Under root, the users of containers have ids of their own (`launcher.ids`): what root inside is to read or to change as
its owner must be given to it.  Under an ordinary user, all files are that user's, inside and outside.

Earlier versions ran root's containers as the machine's root.  What they left is handed over when it is used again.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from pathlib import Path

from subak.local.runtime.launcher import ids

Owner = tuple[int, int]
"""A user and a group inside."""
ROOT: Owner = (0, 0)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOUNTS = Path("/proc/self/mountinfo")


def give(place: Path | int, mode: int) -> None:
    """Give a file or directory, by its path or its descriptor, to root inside, with this mode whatever our umask is."""
    os.chmod(place, mode)
    if ids.shifted():
        os.chown(place, *ids.of_root())


def inherited(directory: Path) -> bool:
    """Whether an earlier version made this directory for containers, and it was not handed over."""
    return directory.lstat().st_uid == os.geteuid() and ids.shifted()


def hand_over(directory: Path, owner: Owner) -> None:
    """Give what is the machine's root's in a directory to a user inside.  Raises OSError.

    No link is followed, and a file that has a name elsewhere too stays as it is.  The directory itself comes last:
    until then it counts as inherited.  No container may use it meanwhile.
    """
    if _has_mounts(directory):
        raise OSError(errno.EBUSY, "is from an earlier version, and not handed over while something is mounted there")
    outside = ids.of(*owner)
    tree = _Tree(outside)
    here = os.open(directory, _DIRECTORY)
    way: list[tuple[list[str], tuple[int, int]]] = []
    try:
        rest = tree.give_entries(here)
        while rest or way:
            if rest:
                above = _identity(here)
                here = _instead(here, os.open(rest.pop(), _DIRECTORY, dir_fd=here))
                way.append((rest, above))
                rest = tree.give_entries(here)
            else:
                here = _instead(here, os.open("..", _DIRECTORY, dir_fd=here))
                rest, above = way.pop()
                if _identity(here) != above:
                    raise OSError(errno.EAGAIN, "somebody moves its directories", str(directory))
        os.fchown(here, *outside)
    finally:
        os.close(here)


class _Tree:
    """The files of a tree, of which those with several names are counted."""

    def __init__(self, outside: tuple[int, int]) -> None:
        self._outside = outside
        self._names: Counter[int] = Counter()

    def give_entries(self, directory: int) -> list[str]:
        """Give the entries of a directory away; gives the names of directories among them."""
        directories = []
        with os.scandir(directory) as entries:
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    directories.append(entry.name)
                elif info.st_nlink > 1:
                    self._names[info.st_ino] += 1
                    if self._names[info.st_ino] < info.st_nlink:
                        continue
                if info.st_uid == os.geteuid():
                    os.chown(entry.name, *self._outside, dir_fd=directory, follow_symlinks=False)
        return directories


def _instead(old: int, new: int) -> int:
    os.close(old)
    return new


def _identity(directory: int) -> tuple[int, int]:
    info = os.fstat(directory)
    return info.st_dev, info.st_ino


def _has_mounts(directory: Path) -> bool:
    """Whether something is mounted in a directory."""
    start = "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in f"{directory.resolve()}/")
    lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    return any(line.split(" ")[4].startswith(start) for line in lines)
