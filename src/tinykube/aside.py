"""Calls that take long or never come back, as into a broken driver, a hanging disk or a name server that is silent.

Each has a thread of its own, for which nobody waits when the program ends.  The threads of an event loop
(`asyncio.to_thread`) are few: calls that hang there would keep all others waiting, and the loop waits for them before
it closes.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class Errands:
    """Calls that are under way, at most one for each key, however many wait for it or have given up to wait."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    def under_way(self, key: Hashable) -> bool:
        """Whether a call with this key has not come back yet."""
        return key in self._under_way

    async def run(self, key: Hashable, call: Callable[[], T]) -> T:
        """What the call gives or raises, or the one with the same key that is under way."""
        if key not in self._under_way:
            task: asyncio.Task[T] = asyncio.create_task(aside(call))
            self._under_way[key] = task
            task.add_done_callback(partial(self._came_back, key))
        answer: T = await asyncio.shield(self._under_way[key])
        return answer

    def _came_back(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # nobody may wait for it any more


async def aside(call: Callable[[], T]) -> T:
    """What the call gives or raises; OSError if there can be no more threads."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if answer.done():
            return  # nobody waits any more
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]

    def work() -> None:
        try:
            value, error = call(), None
        except Exception as raised:
            value, error = None, raised
        with suppress(RuntimeError):  # the loop is closed: it came too late
            loop.call_soon_threadsafe(settle, value, error)

    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from None
    return await answer
