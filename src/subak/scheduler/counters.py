"""Counters of what the scheduler has done."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Seconds from creation to binding: a free card takes milliseconds, a full cluster hours."""


@dataclass(slots=True)
class Durations:
    """How many durations were at most so long; the last of `counts` are those beyond all BOUNDS."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(slots=True)
class Counters:
    """Counts since the start; `deciding_seconds` is the time that cycles took.

    `refusals` counts reports by reason; `created_to_bound` is how long pods waited, `with_sessions` how long cycles
    took in which a session of gangs and queues ran.
    """

    events: int = 0
    cycles: int = 0
    deciding_seconds: float = 0.0
    bound: int = 0
    bind_failures: int = 0
    looked_up: int = 0
    reports: int = 0
    restored: int = 0
    evicted: int = 0
    nominated: int = 0
    warnings: int = 0
    lock_waits: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    created_to_bound: Durations = field(default_factory=Durations)
    with_sessions: Durations = field(default_factory=Durations)
