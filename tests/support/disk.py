"""A small disk to fill: a file system in memory that only a mount namespace has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Disk:
    """A small disk."""

    path: Path
    """Where it is for those inside."""
    inside: Sequence[str]
    """Runs a command where the disk is mounted."""
    seen: Path
    """Where everybody else finds it."""


@contextmanager
def small_disk(path: Path, mebibytes: int) -> Iterator[Disk]:
    """A disk that is there as long as a process holds it."""
    path.mkdir()
    own = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    mount = f'mount -t tmpfs -o size={mebibytes}m none "$0" && echo mounted && exec cat'
    command = ["unshare", *own, "--mount", "sh", "-c", mount, str(path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        inside = ["nsenter", f"--target={holder.pid}", "--mount"]
        if own:
            inside += ["--user", "--preserve-credentials"]
        yield Disk(path, inside, Path(f"/proc/{holder.pid}/root{path}"))
