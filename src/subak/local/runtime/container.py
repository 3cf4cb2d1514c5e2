"""A confined container: our end of the socket to its monitor.

The socket is also its lifeline.  If this process dies in any way, the monitor sees the socket close and ends the
container.  Nothing has to be cleaned up, because a container leaves nothing behind when its last process ends.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import IO, TYPE_CHECKING, Any, Self

from subak.local.runtime import sealed
from subak.local.runtime.cgroups import Cgroup
from subak.local.runtime.launcher.order import EXECUTE, EXITED, FAILED, KILL, STARTED, hear
from subak.local.runtime.session import Watched
from subak.local.runtime.spec import USUAL_PATH, StartError
from tinykube.server.kubelet import Session

if TYPE_CHECKING:
    from subak.local.runtime.launcher.order import Order, Program

_LAUNCHER = str(Path(__file__).parent / "launcher")
_LONGEST_START = 60.0
_PATIENCE = 10.0
"""Seconds that a container may take to end after SIGKILL, before its monitor is killed too."""


class Confined:
    """A `Container` whose processes have their own namespaces."""

    def __init__(self, order: Order, cgroup: Cgroup | None = None) -> None:
        """Launch it; `begin` waits until it runs.  Raises StartError, OSError, and then removes the cgroup."""
        self._program = order["program"]
        self._cgroup = cgroup
        self._out_of_memory = False
        self._loop = asyncio.get_running_loop()
        self._pid = 0
        self._code = 128 + SIGKILL
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        with ExitStack() as undo:
            if cgroup is not None:
                undo.callback(cgroup.remove)
            self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undo.callback(self._control.close)
            with theirs, _entered(order["program"], cgroup) as entrances, _in_memory(order) as file:
                self._monitor = _launch(theirs.fileno(), file.fileno(), entrances)
            undo.pop_all()
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._hear)

    async def begin(self) -> None:
        """Wait until its command runs.  Raises StartError if it cannot; then nothing is left of it."""
        try:
            async with asyncio.timeout(_LONGEST_START):
                await self._begun
        except TimeoutError:
            await self._abandon()
            raise StartError(
                f"the container was not made within {_LONGEST_START:.0f} s; does a mount of the machine not answer?"
            ) from None
        except BaseException:
            await self._abandon()
            raise

    def when_gone(self, callback: Callable[[Self], None]) -> None:
        """Call this once nothing is left of it."""
        self._exited.add_done_callback(lambda _: callback(self))

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def out_of_memory(self) -> bool:
        return self._out_of_memory

    async def wait(self) -> int:
        return await asyncio.shield(self._exited)

    async def stop(self, grace: float) -> None:
        for number, patience in ((SIGTERM, grace), (SIGKILL, _PATIENCE)):
            if patience > 0:
                self._send(KILL + bytes([number]))
                if await self._gone(patience):
                    return
        await self._abandon()

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool, tty: bool) -> Session:
        try:
            with _in_memory(self._program | program_of(argv, env) | {"tty": tty}) as program:
                session = self._open_session(program.fileno(), stdin, tty)
        except (OSError, ValueError) as error:  # no more descriptors, text that cannot be encoded
            raise StartError(f"the program cannot be launched: {error}") from error
        await session.begin()
        return session

    def _open_session(self, program: int, stdin: bool, tty: bool) -> Watched:
        """Ask the monitor for a program.  Raises OSError, and then leaves nothing open."""
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                given, near, outputs = ([], -1, {}) if tty else _pipes(stdin)
            except OSError:
                line.close()
                raise
            session = Watched(line, near, outputs)
            self._send(EXECUTE, [program, theirs.fileno(), *given])
        for descriptor in given:
            os.close(descriptor)
        return session

    def _send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send the monitor a message.  If it is gone, waiting callers learn that from `_hear`."""
        with suppress(OSError):
            socket.send_fds(self._control, [message], descriptors)

    def _hear(self) -> None:
        """The monitor has something to say, or has ended."""
        words = hear(self._control)
        if words[0] == STARTED:
            self._pid = words[1]
            if not self._begun.done():
                self._begun.set_result(None)
        elif words[0] == FAILED:
            _, code, text, number = words
            self._fail(StartError(text, code, number))
        elif words[0] == EXITED:
            self._code = words[1]
        else:
            self._loop.remove_reader(self._control)
            self._control.close()
            self._monitor.wait()  # short: closing its files is the last thing that it does
            self._fail(StartError(f"the launcher ended with code {self._monitor.returncode} before the command began"))
            if self._cgroup is not None:
                self._out_of_memory = self._cgroup.out_of_memory
                self._cgroup.remove()
            self._exited.set_result(self._code)

    def _fail(self, error: StartError) -> None:
        if not self._begun.done():
            self._begun.set_exception(error)

    async def _gone(self, patience: float) -> bool:
        """Whether it ends within so many seconds."""
        await asyncio.wait([self._exited], timeout=patience)
        return self._exited.done()

    async def _abandon(self) -> None:
        """Close the lifeline, and wait until nothing is left."""
        if not self._exited.done():
            with suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            if not await self._gone(_PATIENCE):
                self._monitor.kill()
                await self._gone(_PATIENCE)


@contextmanager
def _entered(program: Program, cgroup: Cgroup | None) -> Iterator[Sequence[int]]:
    """Open the cgroup for the launcher, and tell the program the numbers."""
    entrances = program["cgroups"] = cgroup.entrances() if cgroup is not None else []
    try:
        yield entrances
    finally:
        for entrance in entrances:
            os.close(entrance)


def _launch(control: int, order: int, cgroups: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start the launcher.  Raises StartError, OSError."""
    python = sealed.interpreter()
    given = (control, order, python, *cgroups)
    try:
        return subprocess.Popen(
            # Isolated and without site-packages, which it does not need, it starts in half the time.
            [sys.executable, "-I", "-S", "-X", "utf8", _LAUNCHER, *map(str, given)],
            executable=f"/proc/self/fd/{python}",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env=sealed.environment(),
            pass_fds=given,
            # Ctrl-C in our terminal must reach only us: we end containers in good order.
            start_new_session=True,
        )
    except PermissionError as error:
        raise sealed.forbidden(error) from error


def program_of(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """The program in bytes, as the kernel takes it; text that is not UTF-8 keeps its bytes."""
    return {
        "argv": [os.fsencode(word) for word in argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        "path": os.fsencode(env.get("PATH", USUAL_PATH)),
    }


def _pipes(stdin: bool) -> tuple[list[int], int, dict[int, int]]:
    """A program's three streams, our end of its input (-1 if it gets none), and our ends of its output by stream."""
    opened: list[int] = []
    try:
        opened += os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
        opened += os.pipe()
        opened += os.pipe()
    except OSError:  # no descriptor is left: those that we have must not be lost
        for descriptor in set(opened) - {-1}:
            os.close(descriptor)
        raise
    far, near, output, standard_output, error, standard_error = opened
    return [far, standard_output, standard_error], near, {output: 1, error: 2}


def _in_memory(content: Any) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("order", os.MFD_CLOEXEC), "w+b")
    file.write(marshal.dumps(content))
    file.flush()
    return file
