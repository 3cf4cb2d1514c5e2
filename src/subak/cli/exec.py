"""`subak exec`: run a program in a container, with a terminal if wanted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty as terminals
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import click

from subak.cli import targets
from subak.cli.connection import Connection, connected
from subak.cli.say import complain
from tinykube.exec import STDERR, ExecSession, execute

CHUNK = 1 << 16


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("pod", metavar="POD")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGUMENT]...")
@click.option("-c", "--container", default="", metavar="NAME", help="The container; the first one if not said.")
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input on to it.")
@click.option("-t", "--tty", is_flag=True, help="Give it a terminal.")
@connected
async def exec(
    connection: Connection, pod: str, command: tuple[str, ...], container: str, stdin: bool, tty: bool
) -> int:
    """Run a program in a running container of POD; its exit code becomes ours.

    POD is a name, NAMESPACE/NAME or pod/NAME.  It ends when the program ends, whether or not there is more input.

    \b
    Examples:
      subak exec gpu-pod1 -- env
      subak exec -it gpu-pod1 -- bash
      subak exec -i default/gpu-pod1 -- sh < script.sh

    \b
    Exit codes:
      the program's own, or
        1  there is no such pod or container, or the program cannot be run
        2  bad input
    """
    if tty and not sys.stdin.isatty():
        complain((), (), ["no terminal is given to the program: standard input is none"])
        tty = False
    namespace, name = targets.pod(connection, pod)
    session = await execute(
        connection.transport, name, namespace, command, container=container, stdin=stdin, tty=tty
    )  # fmt: skip
    with _raw_terminal(tty):
        feeding = asyncio.create_task(_feed(session)) if stdin else None
        if tty:
            await _follow_size(session)
        try:
            async for channel, data in session.output():
                stream = sys.stderr.buffer if channel == STDERR else sys.stdout.buffer
                stream.write(data)
                stream.flush()
        finally:
            if feeding is not None:
                feeding.cancel()
            await session.close()
    return session.exit_code()


async def _feed(session: ExecSession) -> None:
    """Pass standard input on until it ends, or until the program does."""
    with suppress(ConnectionError):  # the program has ended, and with it the connection
        async for data in _input(sys.stdin.fileno()):
            await session.write(data)
        await session.end_input()


async def _input(number: int) -> AsyncIterator[bytes]:
    """The content of a file, without reads that block: nothing could end them when the program ends."""
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        try:
            loop.add_reader(number, ready.set)
        except PermissionError:
            pass  # a plain file, from which a read never waits
        else:
            try:
                await ready.wait()
            finally:
                loop.remove_reader(number)
        try:
            data = os.read(number, CHUNK)
        except OSError:  # a terminal that was hung up
            return
        if not data:
            return
        yield data


async def _follow_size(session: ExecSession) -> None:
    """Send the size of our terminal, now and whenever it changes."""
    tasks: set[asyncio.Task[None]] = set()

    async def tell() -> None:
        columns, rows = os.get_terminal_size(sys.stdin.fileno())
        await session.resize(columns, rows)

    def changed() -> None:
        task = asyncio.ensure_future(tell())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await tell()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, changed)


@contextmanager
def _raw_terminal(wanted: bool) -> Iterator[None]:
    """Pass keys to the program as they are; restore the terminal afterwards, also if we are asked to end."""
    if not wanted:
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    for asked in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, lambda received, _: sys.exit(128 + received))
    terminals.setraw(number, termios.TCSADRAIN)  # keeps keys that were typed ahead
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(number, termios.TCSADRAIN, before)
