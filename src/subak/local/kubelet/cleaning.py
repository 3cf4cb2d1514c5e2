"""Removes what a pod left on the disk: again and again until it is gone, while the pod itself is long over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread

PATIENCE = 5.0
"""Seconds for which the end of a pod waits until its volumes are gone."""

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 300.0

log = logging.getLogger(__name__)


def _warn(why: str) -> None:
    log.warning("what a pod left on the disk %s", why)


async def clean(remove: Callable[[], None], complain: Callable[[str], None] = _warn) -> None:
    """Call `remove` in a thread until it succeeds; `complain` learns once what stands in the way.

    The thread is its own: those of the loop are few, and pods that are about to start need them.
    """
    pause = FIRST_PAUSE
    complained = False
    while True:
        try:
            await asyncio.wrap_future(_begun(remove))
            return
        except (OSError, RuntimeError) as error:  # RuntimeError: there can be no more threads
            if not complained:
                complain(f"cannot be removed, and is tried again: {error}")
            complained = True
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _begun(work: Callable[[], None]) -> Future[None]:
    """Begin it in a thread for which nobody waits when the program ends."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return done
