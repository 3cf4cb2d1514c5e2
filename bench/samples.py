"""The costs of a kind of event: count, percentiles, maximum."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import msgspec

POINTS = 100
DECADES = 5


class Samples(msgspec.Struct, frozen=True):
    """All costs of one kind, in seconds.  `tail` is for a plot: the costs that fewer and fewer events exceed."""

    count: int
    total: float
    p50: float
    p99: float
    p999: float
    worst: float
    tail: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Seconds of an event on average."""
        return self.total / self.count


def summary(costs: array[float]) -> Samples:
    """The summary of these costs; there must be at least one."""
    ordered = sorted(costs)

    def rank(part: float) -> float:
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    tail = tuple(rank(1 - exceeded(point)) for point in range(POINTS) if exceeded(point) * len(ordered) >= 1)
    return Samples(len(ordered), sum(ordered), rank(0.5), rank(0.99), rank(0.999), ordered[-1], tail)


def summaries(costs: Mapping[str, array[float]]) -> dict[str, Samples]:
    """The summary of each kind that occurred."""
    return {kind: summary(each) for kind, each in costs.items() if each}


def exceeded(point: int) -> float:
    """The part of all events that cost more than this point of `Samples.tail`."""
    return float(10 ** (-DECADES * point / (POINTS - 1)))
