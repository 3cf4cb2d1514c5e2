"""Containers without any process: they run until they are stopped.  For clusters too large for one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NoReturn

from subak.local.runtime.spec import Spec, StartError

_TERMINATED = 143
"""The exit code of a program that SIGTERM ended."""


class Pretended:
    """A `Container` that only seems to run."""

    __slots__ = ("_exited", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        # Made only if somebody waits, since there may be very many containers.
        self._exited: asyncio.Future[int] | bool = False

    @property
    def pid(self) -> int:
        return 0

    @property
    def out_of_memory(self) -> bool:
        return False

    async def wait(self) -> int:
        if self._exited is False:
            self._exited = asyncio.get_running_loop().create_future()
        if isinstance(self._exited, asyncio.Future):
            await asyncio.shield(self._exited)
        return _TERMINATED

    async def stop(self, grace: float) -> None:
        if isinstance(self._exited, asyncio.Future) and not self._exited.done():
            self._exited.set_result(_TERMINATED)
        self._exited = True

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool, tty: bool) -> NoReturn:
        raise StartError(f"{self._name} has no process: this cluster runs without containers (--runtime none)")


class Nothing:
    """The `Runtime` that starts nothing."""

    async def start(self, spec: Spec) -> Pretended:
        return Pretended(spec.name)

    async def close(self) -> None:
        """Nothing has to be ended."""
