"""Containers whose process only waits, because their command is not known or must not run unconfined.

Where containers can be confined, a stand-in is a container that sleeps, and other programs can run in it.  Where the
kernel forbids it, a stand-in is a process that reads from an empty pipe; it ends with us, since then the pipe closes.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, Self

from subak.local.runtime.spec import Container, Runtime, Spec, StartError

_SLEEP = ("sleep", "infinity")
_READ = ("cat",)
_TERMINATED = 143
"""The exit code of a program that SIGTERM ended."""


class StandIn:
    """A `Container` that waits unconfined, and so runs no program of the user."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._process = subprocess.Popen(
            _READ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        # It never prints anything, so the only thing to read is the end.
        self._loop.add_reader(self._process.stdout, self._end)

    def when_gone(self, callback: Callable[[Self], None]) -> None:
        """Call this once it has ended."""
        self._exited.add_done_callback(lambda _: callback(self))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out_of_memory(self) -> bool:
        return False

    async def wait(self) -> int:
        return await asyncio.shield(self._exited)

    async def stop(self, grace: float) -> None:
        if not self._exited.done():
            assert self._process.stdin is not None
            self._stopped = True
            # It reads the end of the pipe even if it inherited from our operator's shell that it ignores signals.
            self._process.stdin.close()
            await asyncio.shield(self._exited)

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool, tty: bool) -> NoReturn:
        raise StartError(f"{self._name} is a stand-in: nothing can be run in it, since it could not be confined")

    def _end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._loop.remove_reader(self._process.stdout)
        self._process.stdin.close()
        self._process.stdout.close()
        code = self._process.wait()
        self._exited.set_result(_TERMINATED if self._stopped else code if code >= 0 else 128 - code)


class StandIns:
    """The `Runtime` of stand-ins; `confined` is the runtime that confines them, None if there is none."""

    def __init__(self, confined: Runtime | None = None) -> None:
        self._confined = confined
        self._containers: set[StandIn] = set()

    async def start(self, spec: Spec) -> Container:
        if self._confined is not None:
            return await self._confined.start(replace(spec, argv=_SLEEP))
        if spec.log is not None:
            spec.log.touch()
        container = StandIn(spec.name)
        self._containers.add(container)
        container.when_gone(self._containers.discard)
        return container

    async def close(self) -> None:
        """End the unconfined ones.  The others end with the runtime that confines them."""
        await asyncio.gather(*(container.stop(0) for container in list(self._containers)))
