"""Creates a container's namespaces and its process 1.

    monitor ──fork──> a first process ──unshare──> user, mount, pid, uts and ipc namespaces
       │ maps the users of the new namespace         │
       │                                             └─fork──> process 1; the first process ends
       └─ is now the parent of process 1, and lets it go on

Root maps all users to themselves, so that `chown` and `runAsUser` mean what they say.  An ordinary user can map only
one id: the user that the container asks for is then the user outside.
"""

from __future__ import annotations

import os
import socket

from . import init, kernel
from .order import FAILED, answer, hear
from .program import NO_CONTAINER, NotStarted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from .order import Order, Program

_UNSHARED = "unshared"
_BORN = "born"
_GO = b"go"
_NAMESPACES = ("user", "mnt", "uts", "ipc", "pid")
"""In the order in which they can be joined: the user namespace gives the right to enter the others."""


class Birth:
    """A container whose process 1 is about to build its view and to start the command.

    `process` is the machine's number of process 1, `channel` the socket on which it reports, `namespaces` are open
    descriptors.  The calling process must adopt orphans.
    """

    def __init__(self, order: Order, streams: Sequence[int]) -> None:
        """`streams` are standard input (-1 for none), output and error of the command.  Raises NotStarted, OSError."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        first = os.fork()
        if first == 0:
            self.channel.close()
            _first_process(order, theirs, streams)
        theirs.close()
        self._expect(_UNSHARED)
        _map_users(first, order["program"])
        self.channel.send(_GO)
        self.process = int(self._expect(_BORN)[1])
        os.waitpid(first, 0)
        # Opened now, because process 1 soon hides itself from other processes.
        self.namespaces = [os.open(f"/proc/{self.process}/ns/{name}", os.O_RDONLY) for name in _NAMESPACES]
        self.channel.send(_GO)

    def _expect(self, word: str) -> tuple[Any, ...]:
        words = hear(self.channel)
        if words[0] == FAILED:
            raise NotStarted(*words[1:])
        if words[0] != word:
            raise NotStarted(NO_CONTAINER, f"the first process of the container said {words}, not {word}")
        return words


def _first_process(order: Order, monitor: socket.socket, streams: Sequence[int]) -> NoReturn:
    try:
        kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_UTS | kernel.NEW_IPC)
        answer(monitor, _UNSHARED)
        if monitor.recv(len(_GO)) == _GO:
            process = os.fork()
            if process:
                answer(monitor, _BORN, process)
            elif monitor.recv(len(_GO)) == _GO:
                init.run(order, monitor, streams)
    except OSError as error:
        answer(monitor, FAILED, NO_CONTAINER, kernel.words(error), error.errno or 0)
    finally:
        os._exit(0)


def _map_users(process: int, program: Program) -> None:
    if os.geteuid() == 0:
        try:
            _write(process, "uid_map", _all_ids("uid_map"))
        except PermissionError:
            pass  # root may not map users, as in some containers: go on as an ordinary user
        else:
            _write(process, "gid_map", _all_ids("gid_map"))
            return
    _write(process, "setgroups", "deny")
    _write(process, "uid_map", f"{program['uid']} {os.geteuid()} 1\n")
    _write(process, "gid_map", f"{program['gid']} {os.getegid()} 1\n")


def _all_ids(name: str) -> str:
    """All users or groups of our own namespace, each mapped to itself."""
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        extents = [line.split() for line in file]
    return "".join(f"{first} {first} {count}\n" for first, _, count in extents)


def _write(process: int, name: str, text: str) -> None:
    # The kernel accepts a map only in one write.
    descriptor = os.open(f"/proc/{process}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
