"""Containers for tests: shell scripts, what they print, and whether anything is left of them."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from subak.local.runtime.container import Confined
from subak.local.runtime.machine import search_path
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.spec import Spec
from tests.support import warm
from tests.support.processes import children
from tinykube.server.kubelet import Session

PATIENCE = 60.0

SWAP = f"""
exec {shlex.quote(sys.executable)} -S -c '
import ctypes
swap, here, exchange = ctypes.CDLL(None).renameat2, -100, 2
while swap(here, b"/v/part", here, b"/v/link", exchange) == 0:
    pass
'
"""
"""A script that swaps a directory and a link in /v without a pause."""


def shell(script: str, **more: object) -> Spec:
    """A container that runs a shell script, and may be stopped by force."""
    spec = Spec("default/a-pod/main", ["sh", "-c", script], {"PATH": search_path(), "HOME": "/root"})
    return replace(spec, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    stdout: str
    stderr: str


async def run(runtime: Namespaces, script: str, **more: object) -> Outcome:
    """Run a shell script in a container to its end."""
    return await complete(runtime, shell(script, **more))


async def complete(runtime: Namespaces, spec: Spec) -> Outcome:
    """Run a container to its end."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "log")
        container = await runtime.start(replace(spec, log=log))
        code = await asyncio.wait_for(container.wait(), PATIENCE)
        return Outcome(code, printed(log, "stdout"), printed(log, "stderr"))


def printed(log: Path, stream: str) -> str:
    """What a container printed on a stream, from its log."""
    text = ""
    for line in log.read_text(errors="surrogateescape").splitlines() if log.exists() else ():
        _, name, tag, content = line.split(" ", 3)
        if name == stream:
            text += content + ("\n" if tag == "F" else "")
    return text


@asynccontextmanager
async def running(runtime: Namespaces, script: str = "sleep 1000", **more: object) -> AsyncIterator[Confined]:
    """A container that is there for a while."""
    container = await runtime.start(shell(script, **more))
    try:
        yield container
    finally:
        await container.stop(0)


async def execute(container: Confined, script: str, given: bytes | None = None, tty: bool = False) -> Outcome:
    """Run a shell script in a running container to its end."""
    env = {"PATH": search_path()}
    session = await container.execute(["sh", "-c", script], env, stdin=given is not None, tty=tty)
    try:
        giving = asyncio.create_task(_give(session, given))
        output = {1: b"", 2: b""}
        async for stream, data in session.output():
            output[stream] += data
        await giving
        code = await asyncio.wait_for(session.wait(), PATIENCE)
    finally:
        await session.close()
    return Outcome(code, output[1].decode(errors="replace"), output[2].decode(errors="replace"))


async def _give(session: Session, given: bytes | None) -> None:
    if given is not None:
        await session.write(given)
        await session.end_input()


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def processes(marker: str) -> list[int]:
    """The processes of the machine that have a word in their command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                command = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in command.split(b"\0"):
                found.append(int(entry))
    return found


def own_children() -> list[int]:
    """The processes that are our own children, dead ones included, less those that only serve tests."""
    return [each for each in children(os.getpid()) if each not in warm.nests]
