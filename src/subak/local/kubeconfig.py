"""The kubeconfig that a cluster on this machine writes: a file that belongs to one running cluster.

    claim ──> the file is ours and empty, while the cluster starts
    write ──> it says how to connect
    release ──> it is gone

A running cluster holds a lock on its file, which the kernel releases when the process ends.  So the file of a running
cluster is safe, and the file of a dead one can be taken over.  Only the process that holds the lock replaces the file,
and always as a whole.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from itertools import count
from pathlib import Path

import yaml

from tinykube import private
from tinykube.server.http import HOST
from tinykube.yaml import read

NAME = "subak"
"""The name of our cluster, its user and its context in the file."""


class FileTaken(Exception):
    """A file that belongs to another cluster or program; the text says which, and what to do."""


class Kubeconfig:
    """A file that is ours.  Make one with `claim` or `claim_first`."""

    def __init__(self, path: Path, held: int) -> None:
        self.path = path
        self._held = held

    def write(self, text: str) -> None:
        """Write how to connect.  Raises FileTaken if the file was removed or replaced, and OSError."""
        if not _is_at(self._held, self.path):
            raise FileTaken(f"{self.path}: somebody removed or replaced it; start the cluster again")
        fresh, held = _written(self.path, text)
        fresh.replace(self.path)
        os.close(self._held)
        self._held = held

    def release(self) -> None:
        """Remove the file, unless it belongs to another cluster by now.  A second call does no harm."""
        if self._held < 0:
            return
        if _is_at(self._held, self.path):
            self.path.unlink()
        os.close(self._held)
        self._held = -1


def claim(path: Path) -> Kubeconfig:
    """The file at a path.  Raises FileTaken if it is a running cluster's, or not a file of ours at all; and OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _claimed(path, ours=False)


def claim_first(path: Path) -> Kubeconfig:
    """The file at a path in our own directory or, if a running cluster has it, `path-2`, `path-3` and so on.

    Raises OSError.
    """
    private.directory(path.parent)
    for number in count(1):
        try:
            return _claimed(path if number == 1 else path.with_name(f"{path.name}-{number}"), ours=True)
        except FileTaken:
            continue
    raise AssertionError("numbers do not end")


def _claimed(path: Path, ours: bool) -> Kubeconfig:
    fresh, held = _written(path, "")
    try:
        while True:
            try:
                os.link(fresh, path)  # unlike a rename, it does not replace
                return Kubeconfig(path, held)
            except FileExistsError:
                if _replaced(path, fresh, ours):
                    return Kubeconfig(path, held)
    except BaseException:
        os.close(held)
        raise
    finally:
        fresh.unlink(missing_ok=True)


def _replaced(path: Path, fresh: Path, ours: bool) -> bool:
    """Replace a file that no process holds with the fresh one; False if the old one has gone meanwhile."""
    try:
        left = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # it may be a pipe
    except FileNotFoundError:
        if path.is_symlink():
            raise FileTaken(f"{path}: it is a link to a file that is not there: remove it, or name another") from None
        return False
    try:
        fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(left, path):
            return False
        if not ours and not _is_ours(left):
            raise FileTaken(f"{path}: it is there already, and not from `subak up`: name a file that is not there yet")
        fresh.replace(path)
        return True
    except BlockingIOError:
        raise FileTaken(f"{path}: another `subak up` that is running has this file: name another one") from None
    finally:
        os.close(left)


def _written(path: Path, text: str) -> tuple[Path, int]:
    """A new file beside a path, readable only for its owner, with our lock on it."""
    held, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(held, "wb", closefd=False) as file:  # unlike os.write, all of it or an error
            file.write(text.encode())
    except BaseException:
        os.close(held)
        os.unlink(fresh)
        raise
    return Path(fresh), held


def _is_at(held: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held), path.stat())
    except FileNotFoundError:
        return False


def _is_ours(file: int) -> bool:
    """Whether it is empty, or a kubeconfig with clusters and users of ours only; kubectl may have changed the rest."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size > private.MOST_BYTES:
        return False
    try:
        with open(file, "rb", closefd=False) as kubeconfig:
            text = kubeconfig.read(private.MOST_BYTES)
        if not text:
            return True
        content = read(text).content
        servers = [(each["name"], str(each["cluster"]["server"])) for each in content["clusters"]]
        users = [each["name"] for each in content.get("users") or ()]
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError):
        return False
    ours = all(name == NAME and server.startswith(f"https://{HOST}:") for name, server in servers)
    return bool(servers) and ours and all(user == NAME for user in users)
