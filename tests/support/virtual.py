"""Virtual time: when no task has anything else to do, sleeping tasks wake at once, in the right order.

Only for code without I/O outside its event loop: a loop that skips time would not wait for a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
A_TURN = 1e-5


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer, and moves a little in each turn, however long that takes."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        timers = [handle.when() for handle in scheduled if not handle.cancelled()]
        if not ready and timers:
            self._now = max(min(timers), self._now)
        self._now += A_TURN
        super()._run_once()  # type: ignore[misc]

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for threads as long as it takes: they end in real time, and Python 3.12 gives up after 300 s of ours."""
        await super().shutdown_default_executor()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def until(condition: Callable[[], bool], seconds: float = 60.0, pause: float = 0.005) -> None:
    """Wait until something is true.  Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(pause)
