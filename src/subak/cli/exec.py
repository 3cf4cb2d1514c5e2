"""`subak exec`: run a program in a container, with its terminal if wanted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty as terminals
from collections.abc import Iterator
from contextlib import contextmanager

import click

from subak.cli.connection import Connection, connected
from subak.kube.exec import STDERR, Session, execute


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

    \b
    Examples:
      subak exec gpu-pod1 -- env
      subak exec -it gpu-pod1 -- bash
    """
    tty = tty and sys.stdin.isatty()
    session = await execute(
        connection.transport,
        pod.removeprefix("pod/"),
        connection.namespace,
        command,
        container=container,
        stdin=stdin,
        tty=tty,
    )
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


async def _feed(session: Session) -> None:
    """Pass standard input on until it ends."""
    loop = asyncio.get_running_loop()
    while data := await loop.run_in_executor(None, os.read, sys.stdin.fileno(), 1 << 16):
        await session.write(data)
    await session.end_input()


async def _follow_size(session: Session) -> None:
    """Tell the size of our terminal, now and whenever it changes."""
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
    """Keys go to the program as they are; afterwards the terminal is as it was."""
    if not wanted:
        yield
        return
    before = termios.tcgetattr(sys.stdin.fileno())
    terminals.setraw(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
