"""The contract of container runtimes: the spec of a container, and what a runtime promises.

Three runtimes follow the contract: `namespaces` runs the command as a confined process, `stand_in` starts a process
that only waits, `none` starts nothing at all.

A container's log file has the format of the Container Runtime Interface, one line of output a line of the file:

    2026-11-15T08:00:00.000000000Z stdout F the line
    2026-11-15T08:00:00.000000001Z stderr P a piece of a line that is very long, or that ends without a newline

At `LOG_LIMIT` bytes the file is renamed to `NAME.1` (an older one is lost) and a new one begun.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from subak.local.runtime.launcher.kernel import CAPABILITIES
from subak.model.mount import Mount
from tinykube.server.kubelet import Session

LOG_LIMIT = 10 << 20

SCARCE = frozenset({errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
"""How the kernel says that there is no room, no memory, no descriptor or no process left."""

USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The directories to search for programs if the environment has no PATH."""


@dataclass(frozen=True, slots=True)
class File:
    """A file or directory that a vendor's image or plugin would bring; it is created in the private layer."""

    path: str
    content: bytes = b""
    directory: bool = False
    mode: int = 0o644
    """Directories get the bits to enter them in addition."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One container.  Paths are absolute; those of `mounts`' sources, `devices` and `log` are the machine's."""

    name: str
    """For messages to users: `NAMESPACE/POD/CONTAINER`."""
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment; nothing is inherited.  `machine.search_path()` is a PATH that suits the machine."""
    working_directory: str = "/"
    """Created if it does not exist."""
    mounts: Sequence[Mount] = ()
    """Later ones may lie inside earlier ones."""
    files: Sequence[File] = ()
    """Created before the mounts.  They replace what the machine has at the same path."""
    devices: Sequence[str] = ()
    """Device nodes or directories of them, e.g. `/dev/nvidia0`; the container sees them under the same path."""
    host_name: str = ""
    """The machine's own if empty."""
    uid: int = 0
    gid: int = 0
    groups: Sequence[int] = ()
    """Further groups.  Only root can give them; without root the container keeps those of the user."""
    capabilities: Sequence[str] = tuple(CAPABILITIES)
    """What its programs may do as root inside, by the names of `launcher.kernel.CAPABILITIES`."""
    read_only: bool = False
    """Whether only its volumes can be written to, and what is in memory by itself, as /dev/shm."""
    memory: int = 0
    """The most bytes of memory that its programs may use together, where the runtime can see to it; 0 for any."""
    log: Path | None = None
    """The file for output, in a directory that exists; None discards output."""
    stdin: bool = False
    """Whether standard input stays open, without any input, instead of being at its end at once."""


class StartError(Exception):
    """A program that could not be started: what was tried and why it failed.

    `exit_code` is what a shell or a container runtime would give: 127 if the program is not there, 126 if it cannot
    be run, 128 if the container around it could not be made; 0 if that was not even tried, because a part of a volume
    cannot be had.
    """

    def __init__(self, message: str, exit_code: int = 128, number: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.number = number
        """The kernel's error number, 0 if it gave none."""

    @property
    def reason(self) -> str:
        """The reason in a container's status, as containerd writes it."""
        return "StartError"

    @property
    def passes(self) -> bool:
        """Whether there was no container for want of something that the machine may have again in a moment."""
        return self.exit_code == 128 and self.number in SCARCE


class Container(Protocol):
    """A container that has been started."""

    @property
    def pid(self) -> int:
        """Its first process as the machine sees it; 0 if there is none."""

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel ended a program of it because it had used up its memory; known once it has ended."""

    async def wait(self) -> int:
        """The exit code of its command, 128+n if signal n ended it.  Any number of callers may wait, at any time."""

    async def stop(self, grace: float) -> None:
        """Ask it to end (SIGTERM), and end it by force `grace` seconds later.  Nothing of it is left afterwards."""

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool, tty: bool) -> Session:
        """Start a program beside the command, as the same user.  `env` is all of its environment.

        Raises StartError if the program or the container is not there.
        """


class Runtime(Protocol):
    """Starts containers."""

    async def start(self, spec: Spec) -> Container:
        """Start a container: its program has begun when this returns.  Raises StartError."""

    async def close(self) -> None:
        """End all containers, at once."""
