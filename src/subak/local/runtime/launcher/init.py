"""Process 1 of a container: builds the view, starts the command, reaps processes, passes signals on.

The command is not process 1 itself, because the kernel sends process 1 no signal that it has no handler for: a plain
`sleep` would ignore SIGTERM.  When the command ends, this process ends, and the kernel kills the rest of the container.
"""

from __future__ import annotations

import os
import select

from . import kernel, mounts, program, view
from .bare import signal, socket, suppress
from .order import EXITED, FAILED, LIMITED, STARTED, answer
from .sources import give

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from .order import Order, Program
    from .sources import Sources

_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")


def run(order: Order, sources: Sources, monitor: socket.socket, streams: Sequence[int]) -> NoReturn:
    """Run as process 1.  `streams` become standard input (-1 for none), output and error of the command."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if select.select([monitor], [], [], 0)[0] and not monitor.recv(len(LIMITED), socket.MSG_PEEK):
            os._exit(1)  # the monitor died before we asked to die with it
        os.setsid()
        if order["host_name"]:
            socket.sethostname(order["host_name"])
        os.umask(0o022)
        view.enter(order, sources)
        _make_working_directory(order["program"])
        if order["read_only"]:
            mounts.restrict("/", mounts.READ_ONLY, all_below=False)
        kernel.keep_secrets()
        monitor.recv(len(LIMITED))
        nothing = os.open("/dev/null", os.O_RDWR)  # now: the command may put something else there
        command, begun = program.spawn(order["program"], streams)
        program.confirm(begun)
    except program.NotStarted as error:
        answer(monitor, FAILED, error.exit_code, error.message, error.number)
        os._exit(error.exit_code)
    except OSError as error:
        answer(monitor, FAILED, program.NO_CONTAINER, kernel.words(error), error.errno or 0)
        os._exit(program.NO_CONTAINER)
    except (ValueError, RecursionError) as error:  # RecursionError: a path of hundreds of directories
        answer(monitor, FAILED, program.NO_CONTAINER, str(error), 0)
        os._exit(program.NO_CONTAINER)
    _forward_signals(command)
    _let_go(streams, nothing)
    kernel.filter_calls(order["program"]["filter"])
    answer(monitor, STARTED)
    code = _wait_for(command)
    answer(monitor, EXITED, code)
    os._exit(code)


def _make_working_directory(what: Program) -> None:
    path = what["working_directory"]
    if os.path.isdir(path):
        return
    parent, name = os.path.split(path.rstrip("/"))
    os.makedirs(parent or "/", 0o755, exist_ok=True)
    place = os.open(parent or "/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.mkdir(name, 0o755, dir_fd=place)
        give(place, name, what["uid"], what["gid"])
    except FileExistsError:  # it may lie in a volume, where others write too
        pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(place)


def _forward_signals(command: int) -> None:
    def forward(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(command, number)

    for name in _FORWARDED:
        signal.signal(getattr(signal, name), forward)


def _let_go(streams: Sequence[int], nothing: int) -> None:
    """Close the command's streams, and give up all privileges that reaping does not need."""
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for stream in {nothing, *streams} - {-1, 0, 1, 2}:
        os.close(stream)
    os.chdir("/")
    kernel.bound_capabilities(kernel.CAPABILITIES.values())
    kernel.give_up_privileges(kernel.CAPABILITIES.values())


def _wait_for(command: int) -> int:
    while True:
        process, status = os.waitpid(-1, 0)
        if os.WIFSTOPPED(status):
            stopped(process)
        elif process == command:
            return exit_code(status)


def stopped(process: int) -> None:
    """End a child that has asked us to trace it (PTRACE_TRACEME) and waits for what we say to its next signal."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def exit_code(status: int) -> int:
    """The exit code that a shell gives for this wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
