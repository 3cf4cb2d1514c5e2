"""A further program in a running container, for somebody who watches it.

    monitor ──fork──> a process that joins the namespaces ──fork──> the program; the process in between ends
       └─ is now the parent of the program

With a terminal, its near side goes to whoever watches; without one the program's streams are the pipes they gave.
"""

from __future__ import annotations

import errno
import marshal
import os
import signal
import socket

from . import kernel
from .order import FAILED, STARTED, answer
from .program import NO_CONTAINER, NotStarted, confirm, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .order import Program


def open_session(program: Program, namespaces: Sequence[int], watcher: socket.socket, streams: Sequence[int]) -> int:
    """Start the program; its process as the machine numbers it, 0 if it did not come so far.

    The watcher is told what became of it, either way.
    """
    told, tells = os.pipe()
    between = os.fork()
    if between == 0:
        _join_and_start(program, namespaces, watcher, streams, tells)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        return int(pipe.readline() or 0)


def _join_and_start(
    program: Program, namespaces: Sequence[int], watcher: socket.socket, streams: Sequence[int], tells: int
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The programs of the container must not take this process over while it still knows the world outside.
        kernel.keep_secrets()
        for namespace in namespaces:
            kernel.join(namespace)
        near, far = -1, -1
        if program["tty"]:
            near, far = os.openpty()
            os.fchown(far, program["uid"], -1)
        process, begun = spawn(program, streams, far)
        os.write(tells, f"{process}\n".encode())
        confirm(begun)
        socket.send_fds(watcher, [marshal.dumps((STARTED, process))], [near] if near >= 0 else [])
    except NotStarted as error:
        answer(watcher, FAILED, error.exit_code, error.message, error.number)
    except OSError as error:
        # Where process 1 is dead no other process can be born; the kernel calls that a lack of memory.
        reason = (
            "the container has ended"
            if error.errno == errno.ENOMEM
            else f"cannot enter the container: {kernel.words(error)}"
        )
        answer(watcher, FAILED, NO_CONTAINER, reason, error.errno or 0)
    finally:
        os._exit(0)
