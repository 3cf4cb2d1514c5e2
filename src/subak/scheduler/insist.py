"""Writes about a pod that must be made: tried again while the server cannot be reached or has trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tinykube.status import ApiError, is_temporary

TRIES = 5
PAUSE = 1.0


class Refused(Exception):
    """The server refuses, or could not be reached for long; the message says how."""


async def insist(write: Callable[[], Awaitable[object]]) -> bool:
    """Write until it is done; False if the pod is gone, or is another one.  Raises Refused."""
    problem = ""
    for attempt in range(TRIES):
        try:
            await write()
            return True
        except ApiError as error:
            if error.code in (404, 409):
                return False
            problem = error.message
            if not is_temporary(error):
                break
        except (OSError, TimeoutError) as error:
            problem = str(error)
        await asyncio.sleep(PAUSE * 2**attempt)
    raise Refused(problem)
