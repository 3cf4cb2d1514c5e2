"""What to do when another writer insists: to write against it for ever would help nobody.

A value that was put back several times within a minute is left alone for a while, the next time for longer, and an
administrator is told.
"""

from __future__ import annotations

from collections import deque

MOST, WITHIN = 5, 60.0
"""So many times within so many seconds is no accident."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 960.0


class Contest:
    """Counts, for each key, how often it was put back.  Times are those of any clock that only goes forward."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        self._pauses: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def put_back(self, key: str, now: float) -> bool:
        """Note that a value was put back.  True if that was once too often: it is to be left alone from now on."""
        times = self._times.setdefault(key, deque(maxlen=MOST))
        times.append(now)
        if len(times) < MOST or now - times[0] > WITHIN:
            return False
        pause = min(self._pauses.get(key, FIRST_PAUSE / 2) * 2, LONGEST_PAUSE)
        self._pauses[key] = pause
        self._until[key] = now + pause
        times.clear()
        return True

    def left_alone(self, now: float) -> frozenset[str]:
        """The keys that are not to be written now."""
        return frozenset(key for key, until in self._until.items() if until > now)

    def next_try(self, now: float) -> float | None:
        """When one of them may be written again."""
        return min((until for until in self._until.values() if until > now), default=None)
