"""A program that runs in a container for a client: our end of its pipes or of its terminal.

Nothing is read ahead: if nobody takes its output, the program waits; if it does not take its input, we wait.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress

from subak.local.runtime.launcher.order import EXITED, FAILED, STARTED, receive, understand
from subak.local.runtime.spec import StartError

_CHUNK = 1 << 16
_LARGEST_PIPE = 1 << 20
"""What a pipe holds at most, unless the machine's root says otherwise."""
CLOSING = 5.0
"""Seconds in which a program must end that nobody watches any more; one that hangs in the kernel does not."""
_END_OF_INPUT = b"\x04"
_KILLED = 137


class Watched:
    """The `Session` of a program in a container.

    `line` is the socket with news of it, `standard_input` the descriptor of its input (-1 if it has none), `outputs`
    the stream of each descriptor.  A program with a terminal has neither until it has begun.
    """

    def __init__(self, line: socket.socket, standard_input: int = -1, outputs: Mapping[int, int] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._input = standard_input
        self._outputs = dict(outputs or {})
        self._terminal = -1
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._open = {*self._outputs, standard_input} - {-1}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)
        line.setblocking(False)
        self._loop.add_reader(line, self._hear)

    async def begin(self) -> None:
        """Wait until the program has begun.  Raises StartError if it cannot."""
        try:
            await self._begun
        except BaseException:
            self._release()
            raise

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and self._input >= 0 and not self._exited.done():
            try:
                rest = rest[os.write(self._input, rest) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer, [self._input])
            except OSError:
                return  # it has closed its input

    async def end_input(self) -> None:
        if self._terminal >= 0:
            await self.write(_END_OF_INPUT)
        elif self._input >= 0:
            self._close(self._input)
            self._input = -1

    async def resize(self, columns: int, rows: int) -> None:
        if self._terminal >= 0:
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Its output until it ends; output of programs that it left running is not waited for."""
        left = _LARGEST_PIPE * len(self._outputs)
        while self._outputs and left > 0:
            over = self._exited.done()
            silent = True
            for descriptor, stream in list(self._outputs.items()):
                data = self._read(descriptor)
                if data:
                    silent = False
                    left -= len(data) if over else 0
                    yield stream, data
            if silent and over:
                return
            if silent:
                await self._ready(self._loop.add_reader, self._loop.remove_reader, list(self._outputs))
            else:
                await asyncio.sleep(0)  # if it prints without a pause, others have their turn all the same

    async def wait(self) -> int:
        return await asyncio.shield(self._exited)

    async def close(self) -> None:
        if not self._exited.done():
            with suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._exited), CLOSING)
        self._release()

    def _hear(self) -> None:
        message, descriptors = receive(self._line)
        words = understand(message)
        if words[0] == STARTED:
            for terminal in descriptors:
                os.set_blocking(terminal, False)
                self._open.add(terminal)
                self._terminal, self._input, self._outputs = terminal, terminal, {terminal: 1}
            if not self._begun.done() and self._outputs:
                self._begun.set_result(None)
            elif not self._begun.done():  # the kernel drops what it has no descriptor for, and says nothing
                self._begun.set_exception(StartError(f"its terminal was lost: {os.strerror(errno.EMFILE)}"))
            return
        self._loop.remove_reader(self._line)
        if not self._begun.done():
            _, code, text, _ = words if words[0] == FAILED else (FAILED, 128, "the container has ended", 0)
            self._begun.set_exception(StartError(text, code))
        if not self._exited.done():
            self._exited.set_result(words[1] if words[0] == EXITED else _KILLED)

    def _read(self, descriptor: int) -> bytes:
        """Output that is available now; a stream that has ended is closed."""
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""  # a terminal ends with an error
        if not data:
            del self._outputs[descriptor]
            if descriptor != self._terminal:
                self._close(descriptor)
        return data

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], bool], descriptors: Iterable[int]) -> None:
        """Wait until one of the descriptors can be used or the program has ended."""
        woken = self._loop.create_future()

        def wake(*_: object) -> None:
            if not woken.done():
                woken.set_result(None)

        self._exited.add_done_callback(wake)
        for descriptor in descriptors:
            add(descriptor, wake)
        try:
            await woken
        finally:
            self._exited.remove_done_callback(wake)
            for descriptor in self._open.intersection(descriptors):
                remove(descriptor)

    def _close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            os.close(descriptor)

    def _release(self) -> None:
        self._loop.remove_reader(self._line)
        self._line.close()
        for descriptor in list(self._open):
            self._close(descriptor)
        self._input = self._terminal = -1
        self._outputs.clear()
        if not self._exited.done():
            self._exited.set_result(_KILLED)
