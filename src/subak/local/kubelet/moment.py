"""Moments as Kubernetes writes them: `2026-11-15T08:00:00Z`."""

from __future__ import annotations

import time
from datetime import datetime
from functools import lru_cache


def text(moment: float) -> str:
    """Seconds since the epoch as text, to the second."""
    return _text(int(moment))


@lru_cache(maxsize=64)  # many pods change in the same second
def _text(second: int) -> str:
    year, *rest = time.gmtime(second)[:6]  # strftime writes the year 1 without zeros, which API servers refuse
    return "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(year, *rest)


def read(written: str) -> float:
    """Seconds since the epoch, with fractions."""
    return datetime.fromisoformat(written).timestamp()
