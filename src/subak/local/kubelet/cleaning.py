"""Removes what a pod left on the disk: again and again until it is gone, while the pod itself is long over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tinykube.aside import aside

PATIENCE = 5.0
"""Seconds for which the end of a pod waits until its volumes are gone."""

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 300.0

log = logging.getLogger(__name__)


def _warn(why: str) -> None:
    log.warning("what a pod left on the disk %s", why)


async def clean(remove: Callable[[], None], complain: Callable[[str], None] = _warn) -> None:
    """Call `remove` in a thread until it succeeds; `complain` learns once what stands in the way."""
    pause = FIRST_PAUSE
    complained = False
    while True:
        try:
            await aside(remove)
            return
        except OSError as error:
            if not complained:
                complain(f"cannot be removed, and is tried again: {error}")
            complained = True
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)
