"""Turns a process that is already in the container into the requested program."""

from __future__ import annotations

import errno
import os

from . import allowance, kernel
from .bare import signal, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NoReturn

    from .order import Program

NOT_FOUND = 127
NOT_EXECUTABLE = 126
NO_CONTAINER = 128
_UMASK = 0o022


class NotStarted(Exception):
    """Why a program could not be started, the exit code that says so, and the kernel's error number if there is one."""

    def __init__(self, exit_code: int, message: str, number: int = 0) -> None:
        super().__init__(exit_code, message, number)
        self.exit_code = exit_code
        self.message = message
        self.number = number


def spawn(program: Program, streams: Sequence[int], terminal: int = -1) -> tuple[int, int]:
    """Fork a process that becomes the program, in a new session; gives its process id and what `confirm` needs.

    `streams` become its standard input (-1 for none), output and error, unless a `terminal` becomes all three.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    try:
        if terminal >= 0:
            os.login_tty(terminal)
        else:
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream if stream >= 0 else os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), number)
        become(program)
    except NotStarted as error:
        os.write(writer, f"{error.exit_code} {error.message}".encode())
    except (OSError, ValueError) as error:  # ValueError: a null byte, which cannot be in any argument
        os.write(writer, f"{NO_CONTAINER} {error}".encode())
    finally:
        os._exit(NO_CONTAINER)


def confirm(reader: int) -> None:
    """Wait until a spawned program has begun.  Raises NotStarted if it cannot."""
    with os.fdopen(reader, "rb") as pipe:
        # The kernel closes it when the process becomes the program.
        code, _, message = pipe.read().partition(b" ")
    if code:
        raise NotStarted(int(code), message.decode())


def default_signals(numbers: Iterable[int]) -> None:
    """Let signals do what they usually do.

    Ignored and blocked ones are inherited: SIGPIPE from Python, SIGHUP from nohup, SIGINT from a background job.
    """
    for number in set(numbers) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become(program: Program) -> NoReturn:
    """Run the program in the place of this process, as its user and without privileges.  Raises NotStarted."""
    kernel.bound_capabilities(program["capabilities"])
    with suppress(PermissionError):  # where an ordinary user runs the cluster; no file is asked, for it may be a pipe
        os.setgroups(program["groups"])
    os.setresgid(program["gid"], program["gid"], program["gid"])
    os.setresuid(program["uid"], program["uid"], program["uid"])
    kernel.keep_secrets()  # again: for a new user the kernel goes by fs.suid_dumpable
    kernel.give_up_privileges(program["capabilities"] if program["uid"] == 0 else ())
    allowance.lower_program()
    if program["processes"]:
        kernel.limit(kernel.PROCESSES, program["processes"])
    os.umask(_UMASK)
    default_signals(signal.valid_signals())
    try:
        os.chdir(program["working_directory"])
    except OSError as error:
        raise NotStarted(
            NOT_EXECUTABLE, f'working directory "{program["working_directory"]}": {error.strerror}'
        ) from error
    kernel.filter_calls(program["filter"])
    _execute(program["argv"], program["env"], program["path"])


def _execute(argv: list[bytes], env: dict[bytes, bytes], path: bytes) -> NoReturn:
    if not argv:
        raise NotStarted(NOT_FOUND, "there is no command")
    name = argv[0]
    denied = b""
    for candidate in [name] if b"/" in name else [os.path.join(each or b".", name) for each in path.split(b":")]:
        try:
            os.execve(candidate, argv, env)
        except (FileNotFoundError, NotADirectoryError) as error:
            if name and os.path.isfile(candidate):
                raise NotStarted(NOT_FOUND, f"exec: {_quoted(candidate)}: {_missing_interpreter(candidate)}") from error
        except PermissionError:
            denied = denied or candidate
        except OSError as error:
            raise NotStarted(NOT_EXECUTABLE, f"exec: {_quoted(candidate)}: {error.strerror}") from error
    if denied:
        problem = "is a directory" if os.path.isdir(denied) else os.strerror(errno.EACCES)
        raise NotStarted(NOT_EXECUTABLE, f"exec: {_quoted(denied)}: {problem}")
    if b"/" in name:
        raise NotStarted(NOT_FOUND, f"exec: {_quoted(name)}: no such file")
    raise NotStarted(NOT_FOUND, f"exec: {_quoted(name)}: not found in $PATH ({path.decode(errors='replace')})")


def _missing_interpreter(script: bytes) -> str:
    try:
        with open(script, "rb") as file:
            first = file.readline(256).strip()
    except OSError:
        first = b""
    if first.startswith(b"#!"):
        return f"its interpreter is not there: {first.decode(errors='replace')}"
    return "the loader or a library that it needs is not there"


def _quoted(text: bytes) -> str:
    return '"' + text.decode(errors="replace") + '"'
