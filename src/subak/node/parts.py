"""The parts of the agent, each of which goes on whatever happens to the others.

A part that fails is named in the log and in /readyz, and started again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
SETTLED = 60.0
"""A part that ran for so many seconds starts with a short pause again."""

log = logging.getLogger(__name__)


class Parts:
    """Runs functions, by name, until cancelled; `failures` says what is wrong with those that fail."""

    def __init__(self, parts: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        self._parts = parts
        self.failures: dict[str, str] = {}

    async def run(self) -> None:
        """Run all of them."""
        async with asyncio.TaskGroup() as group:
            for name, part in self._parts.items():
                group.create_task(self._keep(name, part))

    async def _keep(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        pause = FIRST_PAUSE
        while True:
            began = _now()
            well = asyncio.get_running_loop().call_later(SETTLED, self.failures.pop, name, None)
            try:
                await part()
                self.failures[name] = f"{name} has ended; it is started again"
                log.error("%s", self.failures[name])
            except Exception as error:
                log.exception("%s failed, which is a mistake in Subak; it is started again in %.0f s", name, pause)
                self.failures[name] = f"{name} failed, and is started again: {error!r}"
            finally:
                well.cancel()
            if _now() - began > SETTLED:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def _now() -> float:
    return asyncio.get_running_loop().time()
