"""One agent a machine: two would both answer the container runtime, and each would refuse what the other one gave.

The lock is the kernel's, on a file, so that it ends with its holder however that ends.  The file says who holds it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO

NAME = "agent.lock"


class Locked(Exception):
    """Another agent runs on this machine, or the lock cannot be had; the text says which, and what to do."""


class HostLock:
    """The lock of this machine, held from now on.  Raises Locked."""

    def __init__(self, directory: Path) -> None:
        path = directory / NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Not "w": whoever does not get the lock must not empty the file.
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+")
        except OSError as error:
            raise Locked(f"{path}: {error.strerror}: run the agent as root, or give another --host-root") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            with file:
                holder = file.read(200).strip() or "somebody"
            raise Locked(f"{path} is held by {holder}: one agent a machine; end that one first") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} (subak agent)\n")
        file.flush()
        self._file: TextIO = file

    def release(self) -> None:
        """Let another agent begin."""
        self._file.close()
