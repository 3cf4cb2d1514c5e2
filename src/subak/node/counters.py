"""Counts of what the agent has done since it started, for /metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

OVERCOMMITTED, NO_RECORD, BAD_RECORD, NOT_SERVED, NOT_READY, OTHER = (
    "Overcommitted",
    "NoRecord",
    "BadRecord",
    "NotServed",
    "NotReady",
    "Other",
)
"""Why containers are refused: a card has not that much left; the pod has no record of its cards; the record means
nothing here, or gives more than was asked for; nobody serves that dialect; the node cannot set up what holds limits."""


@dataclass(slots=True)
class Counters:
    """Containers that were refused, and running ones that were ended, each by reason.

    Kubelet tries a refused container again and again, and each time counts.  `differences` is how many containers
    kubelet and our ledger disagree about, when they were last compared; None if they never were.
    """

    refusals: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    differences: int | None = None
