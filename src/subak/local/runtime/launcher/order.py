"""The messages to and from a monitor, encoded with `marshal`, which needs no import.

Text from outside (arguments, environment) travels as bytes, since it need not be UTF-8.
"""

from __future__ import annotations

import marshal
import sys

from .bare import socket, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypedDict

    class Program(TypedDict):
        """A program to run in a container, and its user.

        `capabilities` are the numbers of those that it keeps, `filter` is for the kernel, `cgroups` are descriptors of
        the launcher, `processes` is the most that its user may have inside (0: any number).
        """

        argv: list[bytes]
        env: dict[bytes, bytes]
        path: bytes
        working_directory: str
        uid: int
        gid: int
        groups: list[int]
        capabilities: list[int]
        filter: bytes
        cgroups: list[int]
        processes: int
        tty: bool

    class Mount(TypedDict):
        """As `spec.Mount`.

        `no_link`: the source is what the node has made, and is refused if it is a link: some of these lie where users
        of the machine can put one in their place.
        """

        destination: str
        source: str
        read_only: bool
        size: int
        beneath: str
        refusal: str
        true_ids: bool
        no_link: bool

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
        mounts: list[Mount]
        files: list[File]
        devices: list[str]
        host_name: str
        read_only: bool
        log: str
        log_limit: int
        stdin: bool


STARTED = "started"
"""The program has begun: its process id on the machine."""
FAILED = "failed"
"""It could not be started: exit code, what went wrong, and the kernel's error number, 0 for none."""
EXITED = "exited"
"""It has ended: exit code."""
GONE = "gone"
"""The other side has closed the socket."""

_MOST_DESCRIPTORS = 8
_DESCRIPTOR = 4
"""Bytes"""
_MESSAGE_LIMIT = 1 << 16
"""No message is longer; anything that may be longer comes as the descriptor of a file in memory."""
_LONGEST_WORD = 2000
"""Longer ones lose their middle: a name in them may be as long as its user likes."""

LIMITED = b"l"
"""To process 1: it is in its cgroups, and so will be the program that it starts."""
EXECUTE = b"x"
"""With the descriptors of a Program, of the socket that its session answers on, and of its standard streams."""
KILL = b"k"
"""Followed by the number of the signal as one byte."""


def answer(line: socket.socket, *words: str | int) -> None:
    """Send an answer; the other side may be gone."""
    with suppress(OSError):
        line.send(marshal.dumps(tuple(map(_short, words))))


def _short(word: str | int) -> str | int:
    if isinstance(word, int) or len(word) <= _LONGEST_WORD:
        return word
    return f"{word[: _LONGEST_WORD // 2]} ... {word[-_LONGEST_WORD // 2 :]}"


def hear(line: socket.socket) -> tuple[Any, ...]:
    """Receive an answer."""
    return understand(receive(line)[0])


def receive(line: socket.socket) -> tuple[bytes, list[int]]:
    """A message and the descriptors that came with it.

    `socket.recv_fds` of Python 3.11 loses its flags, and programs that we start would inherit all descriptors.
    """
    descriptors: list[int] = []
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * _DESCRIPTOR)
    while True:
        # Raised once if the other side ended before it read all that we sent; its own messages are still there.
        with suppress(ConnectionResetError):
            message, ancillary, _, _ = line.recvmsg(_MESSAGE_LIMIT, room, socket.MSG_CMSG_CLOEXEC)
            break
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors += memoryview(data)[: len(data) - len(data) % _DESCRIPTOR].cast("i")
    return message, descriptors


def send(line: socket.socket, message: bytes, descriptors: list[int]) -> None:
    """Send a message and descriptors with it."""
    given = b"".join(each.to_bytes(_DESCRIPTOR, sys.byteorder) for each in descriptors)
    line.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)] if given else [])


def understand(message: bytes) -> tuple[Any, ...]:
    """Decode an answer."""
    words: tuple[Any, ...] = marshal.loads(message) if message else (GONE,)
    return words
