"""Calls that may never come back, as into a broken driver: they run beside us, and nobody waits for them at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def aside(call: Callable[[], T]) -> T:
    """What the call gives or raises, from a thread that does not keep the program from ending.

    `asyncio.to_thread` would: the loop waits for its threads before it closes.
    """
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

    threading.Thread(target=work, daemon=True).start()
    return await answer
