"""A process that has imported Subak, and becomes `subak` as often as it is told to; `warm` starts and uses it.

    python -m tests.support.nest DESCRIPTOR

Each order on the socket DESCRIPTOR makes one command: a fork with CLONE_PARENT, that is, a child of the process that
started this one, which so can wait for it and kill it as if it had started the command itself.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import os
import pickle
import platform
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from subak.cli import COMMANDS

MOST_BYTES, MOST_DESCRIPTORS = 1 << 20, 64
"""How large an order may be."""
CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The number of the system call; None where nobody has looked it up."""
CLONE_PARENT = 0x8000


@dataclass(frozen=True)
class Order:
    """A command: what `execve` would be told, and what comes before it."""

    words: tuple[str, ...]
    """The path of the script `subak` and its arguments, or `-m subak.cli` and its arguments."""
    env: dict[bytes, bytes]
    directory: str
    descriptors: tuple[int, ...]
    """Under which numbers it has the descriptors that come with the order; 0, 1 and 2 are the first."""
    session: bool
    group: int
    umask: int


class End:
    """Ends a process whose exit code is known without tidying up the memory of all that it has imported.

    It is registered with `atexit` before all that a command registers, and so called after that.
    """

    def __init__(self) -> None:
        self.code: int | None = None

    def __call__(self) -> None:
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def serve(orders: socket.socket) -> Order | None:
    """Fork a process for each order until nobody can give any; gives the order, in a new process."""
    while True:
        message, received, _, _ = socket.recv_fds(orders, MOST_BYTES, MOST_DESCRIPTORS)
        if not message:
            return None
        order: Order = pickle.loads(message)
        process = _fork_sibling()
        if process == 0:
            _place(received, order.descriptors)
            return order
        for each in received:
            os.close(each)
        orders.send(pickle.dumps(process))


def become(order: Order) -> None:
    """Be a command that has just begun."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order.session:
        os.setsid()
    if order.group >= 0:
        os.setpgid(0, order.group)
    os.umask(order.umask)
    os.chdir(order.directory)
    os.environb.clear()
    os.environb.update(order.env)
    _open_streams(os.environ.get("PYTHONIOENCODING", ""))
    program, *arguments = order.words
    if program == "-m":
        sys.path[0] = order.directory
        sys.argv = [program, *arguments[1:]]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program).parent)
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


def _fork_sibling() -> int:
    """As `os.fork`, but the new process has our parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    process: int = ctypes.PyDLL(None).syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if process == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return process


def _place(received: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors these numbers, and close all others."""
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD, max(numbers) + 1) for each in received]
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)
    for entry in map(int, os.listdir("/proc/self/fd")):
        if entry not in numbers:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(entry)


def _open_streams(wanted: str) -> None:
    """Open the standard streams as Python does when it begins."""
    encoding, _, errors = wanted.partition(":")

    def opened(number: int, mode: str, before: TextIO) -> io.TextIOWrapper:
        kept = before.errors if number == 2 or not encoding else errors or "strict"
        file = open(number, mode, closefd=False)  # noqa: SIM115
        by_line = number == 2 or file.isatty()
        return io.TextIOWrapper(file, encoding or before.encoding, kept, newline="\n", line_buffering=by_line)

    sys.stdin = opened(0, "rb", sys.stdin)
    sys.stdout = opened(1, "wb", sys.stdout)
    sys.stderr = opened(2, "wb", sys.stderr)


def main() -> None:
    """Import all commands, and become one when told."""
    end = End()
    atexit.register(end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in COMMANDS.keys() - {"doctor"}:  # it brings grpc, which does not like to be forked
        importlib.import_module(f"subak.cli.{name}")
    gc.collect()
    gc.freeze()  # else each command would copy the memory of all that it has in common with the others
    orders = socket.socket(fileno=int(sys.argv[1]))
    orders.send(pickle.dumps(len(os.listdir("/proc/self/task"))))
    if order := serve(orders):
        try:
            become(order)
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                end.code = ended.code or 0
            raise
        end.code = 0


if __name__ == "__main__":
    main()
