"""Removing what containers could write to.

A container may have left anything: directories nested so deeply that no path names the last one, names that are no
text, directories that their owner may not enter, links.  So a tree is taken apart from its top, with a few descriptors:

    top/a/b/c   the directories in `a` are moved up to the top, under new names; then `a` is empty and goes
    top/1/c     those that were moved follow

Nothing is looked up by a long path and no link is followed, so nobody who still writes to the tree can lead us out of
it.  A mount point cannot be moved: what is mounted in the tree belongs to somebody else, and is never entered.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread

TRIES = 3
"""How often a directory is emptied into which somebody still writes."""

_leaving: set[Path] = set()

_AS_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(*paths: Path) -> None:
    """Remove trees and files, also where a container took away our own permissions.  What is not there is fine.

    What cannot be removed stays and all else goes; then the first obstacle is raised as OSError.
    """
    obstacle: OSError | None = None
    for path in paths:
        try:
            if stat.S_ISDIR(path.lstat().st_mode):
                _Tree(path).remove()
            else:
                path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            obstacle = obstacle or error
    if obstacle is not None:
        raise obstacle


def discard(path: Path) -> None:
    """Remove it as far as that can be done."""
    with suppress(OSError):
        remove(path)


def throw_away(*paths: Path) -> None:
    """Take them out of the way at once, and discard them in a thread: a container may have left what takes minutes."""
    away = [aside for path in paths if (aside := _moved_aside(path))]
    if not away:
        return
    _leaving.update(away)
    try:
        Thread(target=_discard_all, args=(away,), daemon=True).start()
    except RuntimeError:  # there can be no more threads
        _discard_all(away)


def is_leaving(path: Path) -> bool:
    """Whether this process is about to discard it."""
    return path in _leaving


def _moved_aside(path: Path) -> Path | None:
    """Where it is now, None if nothing is left of it."""
    aside = path.with_name(f"{secrets.token_hex(8)}_")
    try:
        return path.rename(aside)
    except FileNotFoundError:
        return None
    except OSError:  # it cannot be moved
        discard(path)
        return None


def _discard_all(paths: Sequence[Path]) -> None:
    for path in paths:
        discard(path)
        _leaving.discard(path)


class _Tree:
    """A directory with all that is in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = ""
        self._moves = 0
        self._obstacle: OSError | None = None

    def remove(self) -> None:
        with _opened(str(self._path)) as top:
            for _ in range(TRIES):
                self._obstacle = None
                self._mine = f"{secrets.token_hex(8)}."  # begins the names that we give: no container knows them
                self._empty(top)
                try:
                    os.rmdir(self._path)
                    return
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
        raise self._obstacle or OSError(errno.ENOTEMPTY, "somebody still writes to it", str(self._path))

    def _empty(self, top: int) -> None:
        moved = self._clear(top, top)
        while moved:
            name = moved.pop()
            try:
                with _opened(name, top) as directory:
                    moved += self._clear(directory, top)
                os.rmdir(name, dir_fd=top)
            except NotADirectoryError:  # somebody had put a link in its place before it was moved
                self._try(os.unlink, name, top)
            except FileNotFoundError:  # somebody else removes it too
                continue
            except OSError as error:
                self._note(name, error)

    def _clear(self, directory: int, top: int) -> list[str]:
        """Unlink the files of a directory and move the directories in it to the top; gives their new names."""
        moved = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    self._try(os.unlink, entry.name, directory)
                elif not entry.name.startswith(self._mine):
                    self._moves += 1
                    new = f"{self._mine}{self._moves}"
                    if self._try(partial(_move, new=new, top=top), entry.name, directory):
                        moved.append(new)
        return moved

    def _try(self, deed: Callable[..., None], name: str, directory: int) -> bool:
        """Whether it could be done."""
        try:
            deed(name, dir_fd=directory)
            return True
        except FileNotFoundError:
            return False
        except OSError as error:
            self._note(name, error)
            return False

    def _note(self, name: str, error: OSError) -> None:
        what = os.fsencode(name).decode(errors="replace")
        self._obstacle = self._obstacle or OSError(error.errno, error.strerror, f"{what} in {self._path}")


@contextmanager
def _opened(name: str, inside: int | None = None) -> Iterator[int]:
    """A directory in which we may do what we like, if it is ours."""
    try:
        descriptor = os.open(name, os.O_RDONLY | _AS_DIRECTORY, dir_fd=inside)
    except PermissionError:
        _unlock(name, inside)
        descriptor = os.open(name, os.O_RDONLY | _AS_DIRECTORY, dir_fd=inside)
    try:
        if os.fstat(descriptor).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with suppress(PermissionError):  # then its owner is another
                os.fchmod(descriptor, stat.S_IRWXU)
        yield descriptor
    finally:
        os.close(descriptor)


def _move(name: str, *, dir_fd: int, new: str, top: int) -> None:
    try:
        os.rename(name, new, src_dir_fd=dir_fd, dst_dir_fd=top)
    except PermissionError:  # a directory that changes its place must be writable itself
        _unlock(name, dir_fd)
        os.rename(name, new, src_dir_fd=dir_fd, dst_dir_fd=top)


def _unlock(name: str, inside: int | None) -> None:
    """Let ourselves into a directory that cannot be opened."""
    descriptor = os.open(name, os.O_PATH | _AS_DIRECTORY, dir_fd=inside)
    try:
        os.chmod(f"/proc/self/fd/{descriptor}", stat.S_IRWXU)
    finally:
        os.close(descriptor)
