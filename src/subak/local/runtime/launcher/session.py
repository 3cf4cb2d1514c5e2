"""A further program in a running container, for a client that watches it.

    monitor ──fork──> a process that joins the namespaces ──fork──> the program; the process in between ends
       └─ is now the parent of the program

With a terminal, its near side goes to the watcher; without one, the program's streams are the watcher's pipes.
"""

from __future__ import annotations

import errno
import marshal
import os

from . import allowance, ids, kernel
from .bare import signal, socket
from .order import FAILED, STARTED, answer, send
from .program import NO_CONTAINER, NotStarted, confirm, spawn
from .terminal import open_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .order import Program


def open_session(
    program: Program, namespaces: Sequence[int], watcher: socket.socket, streams: Sequence[int]
) -> tuple[int, int]:
    """Start the program; gives the process in between and the program's, on the machine, 0 for what there is not.

    The watcher gets an answer in either case.
    """
    ids.hand_over(streams, program)
    shifted = ids.shifted()
    reader, writer = os.pipe()
    try:
        between = os.fork()
    except OSError as error:  # the machine or our user has no processes left
        os.close(reader)
        os.close(writer)
        answer(watcher, FAILED, NO_CONTAINER, f"cannot enter the container: {kernel.words(error)}", error.errno or 0)
        return 0, 0
    if between == 0:
        _join_and_start(program, shifted, namespaces, watcher, streams, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        return between, int(pipe.readline() or 0)


def _join_and_start(
    program: Program,
    shifted: bool,
    namespaces: Sequence[int],
    watcher: socket.socket,
    streams: Sequence[int],
    writer: int,
) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        allowance.give_way()
        for entrance in program["cgroups"]:
            os.write(entrance, b"0")
        for namespace in namespaces:
            kernel.join(namespace)
        if shifted:
            ids.become_root()
        # Programs of the container must not attach to this process while it still has files of the machine open.
        kernel.keep_secrets()
        near, far = -1, -1
        if program["tty"]:
            near, far = open_terminal()
            os.fchown(far, program["uid"], -1)
        process, begun = spawn(program, streams, far)
        os.write(writer, f"{process}\n".encode())
        confirm(begun)
        send(watcher, marshal.dumps((STARTED, process)), [near] if near >= 0 else [])
    except NotStarted as error:
        answer(watcher, FAILED, error.exit_code, error.message, error.number)
    except OSError as error:
        # When process 1 is dead, the kernel creates no process in its namespace and reports a lack of memory.
        reason = (
            "the container has ended"
            if error.errno == errno.ENOMEM
            else f"cannot enter the container: {kernel.words(error)}"
        )
        answer(watcher, FAILED, NO_CONTAINER, reason, error.errno or 0)
    finally:
        os._exit(0)
