"""The computer on which we run: a node of a cluster, or one that is to become one.

`root` is where its files are: `/`, or the folder where they are mounted in a pod.  Nothing is written there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subak.node.driver import load
from tinykube.client import Client

WINDOW = "http://127.0.0.1:9394"
"""Where our agent shows itself."""


def _nvml(root: Path) -> Any:
    """The functions of the driver's management library, wherever below the root the driver is installed."""
    return load((root, root / "run" / "nvidia" / "driver"))


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the computer; `program` is what it runs, by the last part of its path."""

    pid: int
    program: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """The beginning of its command line, for people."""
        return " ".join((self.program, *self.arguments[:3]))

    def option(self, *names: str) -> str:
        """The value of an option, written `--name value` or `--name=value`; empty if it is not given."""
        for at, argument in enumerate(self.arguments):
            name, equals, value = argument.partition("=")
            if name in names:
                return value if equals else next(iter(self.arguments[at + 1 : at + 2]), "")
        return ""


@dataclass(frozen=True, slots=True)
class Computer:
    """One computer.  `client` speaks to the cluster's API server, if there is one that we know."""

    root: Path = Path("/")
    client: Client | None = None
    window: str = WINDOW
    nvml: Callable[[Path], Any] = field(default=_nvml)

    def at(self, path: str) -> Path:
        """Where a file of the computer is.

        /var/run is a link to /run on every system; below another root it would lead out of there.
        """
        plain = path.replace("/var/run/", "/run/", 1) if path.startswith("/var/run/") else path
        return self.root / plain.lstrip("/")

    def text(self, path: str) -> str | None:
        """What a file says; None if it is not there.  Raises PermissionError if it is not ours to read."""
        try:
            return self.at(path).read_text(errors="replace")
        except PermissionError:
            raise
        except OSError:
            return None

    def processes(self) -> Iterator[Process]:
        """All processes that we can see; in a pod of its own process namespace, only those of the pod."""
        for folder in sorted(self.at("/proc").glob("[0-9]*")):
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended
            if words[0]:
                yield Process(int(folder.name), os.path.basename(words[0]), tuple(filter(None, words[1:])))

    def process(self, *programs: str) -> Process | None:
        """The first process that runs one of these programs."""
        return next((each for each in self.processes() if each.program in programs), None)

    def listening(self, path: str) -> bool | None:
        """Whether somebody listens on a Unix socket, as the kernel lists it; None if that cannot be seen.

        Nobody connects to find out: the NRI socket serves one new plugin after the other, and would wait for us.
        """
        listed = self.text("/proc/1/net/unix") or self.text("/proc/net/unix")
        if listed is None:
            return None
        names = {path, path.replace("/var/run/", "/run/", 1), path.replace("/run/", "/var/run/", 1)}
        rows = [line.split() for line in listed.splitlines()[1:]]
        # Num RefCount Protocol Flags Type St Inode Path; the flag 00010000 is that of a socket which accepts.
        return any(len(row) == 8 and row[7] in names and row[3] == "00010000" for row in rows)
