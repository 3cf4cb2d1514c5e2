"""Puts a container's mounts at their places.

A place may lie in a volume that is mounted already, where other containers write at the same moment.  So what lies
there is looked up once, below that volume: no link leads out of it, to the container's programs for example.
"""

from __future__ import annotations

import errno
import os
import stat

from . import kernel, mounts
from .bare import suppress
from .program import NO_CONTAINER, NotStarted
from .sources import directory_beneath
from .tree import write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .order import Mount

_MODE = 0o755
"""Of directories that are made on the way to a place."""


class Volumes:
    """What has been mounted so far; each is open, so that nobody can put something else in its place."""

    def __init__(self) -> None:
        self._roots: list[tuple[str, int]] = []
        self._meanwhile = f"/.{os.urandom(8).hex()}"

    def attach(self, mount: Mount, path: str, source: int) -> None:
        """Mount a source, or else a tmpfs.  Raises OSError, and NotStarted if a link leads out of a volume."""
        if source < 0:
            source = _memory(mount, self._meanwhile)
        around = max((each for each in self._roots if path.startswith(f"{each[0]}/")), key=_depth, default=None)
        self._roots.append((path, source))
        if around is None:
            make_place(path, source)
            mounts.attach(source, path)
            return
        place = self._place(mount, *around, path, stat.S_ISDIR(os.fstat(source).st_mode))
        try:
            mounts.attach(source, place)
        finally:
            os.close(place)

    def close(self) -> None:
        """Let go of them; they stay mounted."""
        for _, root in self._roots:
            os.close(root)
        with suppress(FileNotFoundError):
            os.rmdir(self._meanwhile)

    def _place(self, mount: Mount, outer: str, root: int, path: str, directory: bool) -> int:
        """What lies at a path in a volume; it is made if nothing does."""
        rest = path[len(outer) + 1 :]
        try:
            return directory_beneath(root, rest, _MODE) if directory else _file_beneath(root, rest)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            why = f"a link on the way leads out of the volume at {outer}"
            raise NotStarted(NO_CONTAINER, f"mount at {mount['destination']}: {why}", error.errno) from None


def _memory(mount: Mount, meanwhile: str) -> int:
    """A tmpfs, open; it is mounted at a place that nobody knows until it is put where it belongs."""
    limit = f",size={mount['size']}" if mount["size"] else ""
    flags = kernel.NO_SUID | kernel.NO_DEV | (kernel.READ_ONLY if mount["read_only"] else 0)
    os.makedirs(meanwhile, exist_ok=True)
    kernel.mount("tmpfs", meanwhile, "tmpfs", flags, "mode=1777" + limit)
    return os.open(meanwhile, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def make_place(path: str, source: int) -> None:
    """Make what a source can be attached to, if it is not there: a directory for a directory, or else a file."""
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, b"", 0o644)


def _file_beneath(root: int, path: str) -> int:
    with suppress(FileNotFoundError):
        return mounts.open_beneath(root, path)
    parent, name = os.path.split(path)
    folder = directory_beneath(root, parent, _MODE) if parent else os.dup(root)
    try:
        with suppress(FileExistsError):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder))
    finally:
        os.close(folder)
    return mounts.open_beneath(root, path)


def _depth(root: tuple[str, int]) -> int:
    return len(root[0])
