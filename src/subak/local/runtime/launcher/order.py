"""What a monitor is told, and what it answers; both as `marshal` writes them, which needs no import.

Text that came from outside (arguments, environment) travels as bytes, since it need not be UTF-8.
"""

from __future__ import annotations

import marshal
import socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Program(TypedDict):
        """A program to run in a container, and as whom."""

        argv: list[bytes]
        env: dict[bytes, bytes]
        working_directory: str
        uid: int
        gid: int
        groups: list[int]
        tty: bool

    class Mount(TypedDict):
        """As `spec.Mount`."""

        destination: str
        source: str
        read_only: bool
        size: int

    class File(TypedDict):
        """As `spec.File`."""

        path: str
        content: bytes
        directory: bool
        mode: int

    class Order(TypedDict):
        """A container."""

        program: Program
        marks: dict[str, str]
        public_only: bool
        mounts: list[Mount]
        files: list[File]
        devices: list[str]
        host_name: str
        log: str
        log_limit: int
        stdin: bool


STARTED = "started"
"""The program has begun: the process it runs under, as the machine numbers it."""
FAILED = "failed"
"""It could not be started: exit code, what went wrong, and the number of the error if the kernel gave one."""
EXITED = "exited"
"""It has ended: exit code."""
GONE = "gone"
"""The other side has closed the socket."""

MESSAGE_LIMIT = 1 << 16
"""No message is longer; what may be comes as a descriptor of a file in memory."""

EXECUTE = b"x"
"""With the descriptors of a Program, of the socket that its session answers on, and of its standard streams."""
KILL = b"k"
"""Followed by the number of the signal as one byte."""


def answer(socket: socket.socket, *words: str | int) -> None:
    """Tell the other side; it may be gone."""
    with suppress(OSError):
        socket.send(marshal.dumps(words))


def understand(message: bytes) -> tuple[Any, ...]:
    """What was answered."""
    words: tuple[Any, ...] = marshal.loads(message) if message else (GONE,)
    return words
