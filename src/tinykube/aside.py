"""Calls that take long or never come back, as into a broken driver, a hanging disk or a name server that is silent.

Each has a thread of its own, for which nobody waits when the program ends.  The threads of an event loop
(`asyncio.to_thread`) are few: calls that hang there would keep all others waiting, and the loop waits for them before
it closes.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


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
