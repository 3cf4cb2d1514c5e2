"""Counters of what the scheduler has done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the start; `deciding_seconds` is the time that cycles took."""

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
