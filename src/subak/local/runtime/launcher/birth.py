"""Creates a container's namespaces and its process 1.

    monitor ──fork──> a first process ──unshare──> user, mount, pid, uts and ipc namespaces
       │ maps the users of the new namespace         │
       │                                             └─fork──> process 1; the first process ends
       └─ is now the parent of process 1, and lets it go on

What the container gets of the machine's files is opened by the monitor if it may do so (as root), or else by the first
process in its new namespaces: see `sources`.
"""

from __future__ import annotations

import os

from . import allowance, ids, init, kernel, mounts
from .bare import socket
from .order import FAILED, answer, hear
from .program import NO_CONTAINER, NotStarted
from .sources import Sources, able

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from .order import Order

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
        shifted = ids.shifted()
        sources = Sources(order, privileged=True) if shifted and able() else None
        ids.hand_over(streams, order["program"])
        first = os.fork()
        if first == 0:
            self.channel.close()
            _first_process(order, sources, shifted, theirs, streams)
        theirs.close()
        self._expect(_UNSHARED)
        ids.write_maps(first, order["program"])
        if sources is not None:
            _keep_ids(order, sources, first)
            sources.close()
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


def _first_process(
    order: Order, sources: Sources | None, shifted: bool, monitor: socket.socket, streams: Sequence[int]
) -> NoReturn:
    try:
        allowance.give_way()
        kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNT | kernel.NEW_PID | kernel.NEW_UTS | kernel.NEW_IPC)
        if sources is None:
            sources = Sources(order, privileged=False)
        answer(monitor, _UNSHARED)
        if monitor.recv(len(_GO)) == _GO:
            process = os.fork()
            if process:
                answer(monitor, _BORN, process)
            elif monitor.recv(len(_GO)) == _GO:
                if shifted:
                    ids.become_root()
                init.run(order, sources, monitor, streams)
    except NotStarted as error:
        answer(monitor, FAILED, error.exit_code, error.message, error.number)
    except OSError as error:
        answer(monitor, FAILED, NO_CONTAINER, kernel.words(error), error.errno or 0)
    finally:
        os._exit(0)


def _keep_ids(order: Order, sources: Sources, process: int) -> None:
    """In the mounts that ask for it, let owners be the same inside and outside."""
    namespace = os.open(f"/proc/{process}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    for mount, source in zip(order["mounts"], sources.mounts, strict=True):
        if mount["true_ids"]:
            mounts.keep_ids(source, namespace)
    os.close(namespace)
