"""What several checks need to know, asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """An answer that is asked for when it is first needed, and shared.  An error is shared as well."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asked: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """The answer.  Whoever gives up waiting does not take it from the others."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._asked)
