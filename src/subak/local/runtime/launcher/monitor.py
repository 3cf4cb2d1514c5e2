"""The process outside: it creates the container, writes its log, starts further programs in it and waits for its end.

It listens on one socket.  When the other end closes, because the container is no longer wanted or because our parent
was killed, the container ends at once.
"""

from __future__ import annotations

import marshal
import os
import select

from . import allowance, kernel
from .bare import signal, socket, suppress
from .birth import Birth
from .init import exit_code, stopped
from .log import Log, Stream
from .order import EXECUTE, EXITED, FAILED, KILL, LIMITED, STARTED, answer, hear, receive
from .program import NO_CONTAINER, NotStarted, default_signals
from .session import open_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .order import Order, Program

_CHUNK = 1 << 16
_LARGEST_PIPE = 1 << 20
"""What a pipe holds at most, unless the machine's root says otherwise."""


def main(line: int, order: int) -> None:
    """Run the container that the file `order` describes, for the process at the other end of the socket `line`."""
    control, content = socket.socket(fileno=line), _load(order)
    default_signals(signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ})  # writes that fail are errors to us
    kernel.adopt_orphans()
    kernel.leave_keyring()
    try:
        allowance.lower()
        Monitor(control, content).run()
    except NotStarted as error:
        answer(control, FAILED, error.exit_code, error.message, error.number)
    except OSError as error:
        answer(control, FAILED, NO_CONTAINER, kernel.words(error), error.errno or 0)


class Monitor:
    """One container, from its creation to its end."""

    def __init__(self, control: socket.socket, order: Order) -> None:
        self._control = control
        self._poll = select.epoll()
        self._actions: dict[int, Callable[[], object]] = {}
        self._sessions: dict[int, tuple[socket.socket, int]] = {}
        """Of each further program: who watches it, and a descriptor that is readable when it has ended."""
        self._parents: dict[int, int] = {}
        """The program of each process in between, which is its parent until it ends and leaves it to us."""
        self._code = 128 + signal.SIGKILL
        self._streams, theirs = self._open_streams(order)
        self._birth = Birth(order, theirs)
        self._limit(order["program"])
        for descriptor in set(theirs) - {-1}:
            os.close(descriptor)
        self._alive = True

    def run(self) -> None:
        """Serve the container until its end."""
        self._watch_children()
        self._watch(self._control.fileno(), self._obey)
        self._watch(self._birth.channel.fileno(), self._listen)
        for descriptor in self._streams:
            self._watch_output(descriptor)
        while self._alive or self._sessions:
            for descriptor, action in [(ready, self._actions[ready]) for ready, _ in self._poll.poll()]:
                if self._actions.get(descriptor) is action:  # unless an action before it has removed it
                    action()
        self._hear_out()
        for descriptor, stream in list(self._streams.items()):
            for _ in range(_LARGEST_PIPE // _CHUNK):  # no more: another container may have it too, and write on
                if not self._read(descriptor):
                    break
            stream.end()
        answer(self._control, EXITED, self._code)

    def _limit(self, program: Program) -> None:
        """Put process 1 into its cgroups.  The kernel takes some 10 ms for that, in which process 1 builds its view."""
        with suppress(ProcessLookupError, BrokenPipeError):  # it has failed already, and its last message says why
            for entrance in program["cgroups"]:
                os.write(entrance, str(self._birth.process).encode())
            self._birth.channel.send(LIMITED)

    def _open_streams(self, order: Order) -> tuple[dict[int, Stream], list[int]]:
        """The near ends of output and error, and the command's standard streams."""
        standard_input = -1
        if order["stdin"]:
            # We keep the other end open, though nothing is ever written there.
            standard_input, self._input = os.pipe()
        if not order["log"]:
            nothing = os.open("/dev/null", os.O_WRONLY)
            return {}, [standard_input, nothing, nothing]
        log = Log(order["log"], order["log_limit"])
        output, theirs = os.pipe()
        error, also_theirs = os.pipe()
        for descriptor in (output, error):
            os.set_blocking(descriptor, False)
        return {output: Stream(log, b"stdout"), error: Stream(log, b"stderr")}, [standard_input, theirs, also_theirs]

    def _watch(self, descriptor: int, action: Callable[[], object]) -> None:
        self._poll.register(descriptor, select.EPOLLIN)
        self._actions[descriptor] = action

    def _watch_output(self, descriptor: int) -> None:
        self._watch(descriptor, lambda: self._read(descriptor))

    def _forget(self, descriptor: int) -> None:
        if self._actions.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def _watch_children(self) -> None:
        reader, writer = os.pipe()
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._watch(reader, lambda: self._reap_when_told(reader))
        self._reap()  # children that ended before the handler was set

    def _reap_when_told(self, reader: int) -> None:
        with suppress(BlockingIOError):
            os.read(reader, _CHUNK)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            if os.WIFSTOPPED(status):
                stopped(process)
            elif process == self._birth.process:
                self._alive = False
            elif process in self._sessions:
                self._end_session(process, exit_code(status))
            elif self._parents.get(process) in self._sessions:
                self._watch_end(self._parents.pop(process))

    def _end_session(self, process: int, code: int) -> None:
        watcher, handle = self._sessions.pop(process)
        self._parents = {between: each for between, each in self._parents.items() if each != process}
        answer(watcher, EXITED, code)
        self._forget(watcher.fileno())
        watcher.close()
        self._forget(handle)
        os.close(handle)

    def _has_ended(self, process: int) -> None:
        """Take in that a further program has ended, also if one that traces it keeps its exit code from us."""
        self._reap()
        if process in self._sessions:
            self._end_session(process, 128 + signal.SIGKILL)

    def _hear_out(self) -> None:
        """Take in the last messages of process 1, which may have ended before we read them."""
        self._birth.channel.setblocking(False)
        with suppress(BlockingIOError):
            while self._listen():
                pass

    def _listen(self) -> bool:
        """Take in a message of process 1; True if there may be more."""
        words = hear(self._birth.channel)
        if words[0] == STARTED:
            answer(self._control, STARTED, self._birth.process)
        elif words[0] == FAILED:
            answer(self._control, *words)
        elif words[0] == EXITED:
            self._code = words[1]
        else:
            self._forget(self._birth.channel.fileno())
            return False
        return True

    def _obey(self) -> None:
        message, descriptors = receive(self._control)
        if not message:
            self._forget(self._control.fileno())
            self._kill(signal.SIGKILL)
        elif message[:1] == KILL:
            self._kill(message[1])
        elif message[:1] == EXECUTE:
            self._execute(descriptors)

    def _kill(self, number: int) -> None:
        if self._alive:  # otherwise it has been reaped, and its number may belong to another process
            os.kill(self._birth.process, number)

    def _execute(self, descriptors: list[int]) -> None:
        what, reply, *streams = descriptors
        program: Program = _load(what)
        watcher = socket.socket(fileno=reply)
        opened = open_session(program, self._birth.namespaces, watcher, streams) if self._alive else (0, 0)
        for descriptor in streams:
            os.close(descriptor)
        if all(opened):
            self._attend(*opened, watcher)
        else:
            watcher.close()

    def _attend(self, between: int, process: int, watcher: socket.socket) -> None:
        try:
            handle = os.pidfd_open(process)
        except OSError:  # no descriptor is left
            self._hang_up(process, watcher)
            watcher.close()
            return
        self._sessions[process] = watcher, handle
        self._parents[between] = process
        self._watch(watcher.fileno(), lambda: self._hang_up(process, watcher))

    def _watch_end(self, process: int) -> None:
        self._watch(self._sessions[process][1], lambda: self._has_ended(process))

    def _hang_up(self, process: int, watcher: socket.socket) -> None:
        """End a program whose watcher has gone."""
        self._forget(watcher.fileno())
        for kill in (os.kill, os.killpg):  # it may not have a group of its own yet
            with suppress(ProcessLookupError):
                kill(process, signal.SIGKILL)

    def _read(self, descriptor: int) -> bool:
        """Pass output to the log; True if there may be more."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._streams[descriptor].end()
            self._forget(descriptor)
            return False
        self._streams[descriptor].feed(data)
        return True


def _load(descriptor: int) -> Any:
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return marshal.loads(file.read())
