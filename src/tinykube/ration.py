"""How much a log may grow: whoever makes a program complain cannot fill the disk with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LINES = 20
MINUTE = 60.0


class Ration(logging.Filter):
    """Lets pass so many records a minute from each place in the code; the next one that passes counts those left out.

    Places are few and texts are not: a client may be named differently each time.
    """

    def __init__(self, lines: int = LINES, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines = lines
        self._clock = clock
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._clock()
        place = self._places.setdefault((record.pathname, record.lineno), _Place(now))
        if now - place.since >= MINUTE:
            place.since, place.passed = now, 0
        if place.passed >= self._lines:
            place.left_out += 1
            return False
        place.passed += 1
        if place.left_out:
            record.msg = f"{record.getMessage()} ({place.left_out:,} more like this were left out)"
            record.args = ()
            place.left_out = 0
        return True


class _Place:
    def __init__(self, now: float) -> None:
        self.since = now
        self.passed = 0
        self.left_out = 0
