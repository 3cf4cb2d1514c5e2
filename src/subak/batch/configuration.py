"""What a `volcano-scheduler.conf` says: which actions, in which order, and which plugins they ask, tier by tier.

`batch.parser` reads the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FLAGS: Mapping[str, str] = {
    "job_rank": "enableJobOrder",
    "queue_rank": "enableQueueOrder",
    "task_rank": "enableTaskOrder",
    "ready": "enableJobReady",
    "pipelined": "enableJobPipelined",
    "starving": "enableJobStarving",
    "enqueueable": "enableJobEnqueued",
    "overused": "enabledOverused",
    "unallocatable": "enabledAllocatable",
    "preemptive": "enablePreemptive",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
}
"""By which switch a configuration takes a plugin out of a question; on unless it says `false`.  Volcano's spelling."""


@dataclass(frozen=True, slots=True)
class Option:
    """One plugin in a tier."""

    name: str
    flags: Mapping[str, bool] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def takes_part(self, question: str) -> bool:
        """Whether the plugin is asked this, by the name of its method."""
        return self.flags.get(FLAGS.get(question, ""), True)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole file.  `arguments` are those of actions, `warnings` what an administrator should know about it.

    `off` has the resources that nobody gets, each with the key that switches it off (`batch.switches`).
    """

    actions: tuple[str, ...]
    tiers: tuple[tuple[Option, ...], ...]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    off: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        tiers = " | ".join(", ".join(option.name for option in tier) for tier in self.tiers)
        return f"actions {', '.join(self.actions)}; plugins {tiers or 'none'}"


DEFAULT = Configuration(
    ("enqueue", "allocate", "backfill"),
    (
        (Option("priority"), Option("gang"), Option("conformance")),
        (Option("overcommit"), Option("drf"), Option("predicates"), Option("proportion"), Option("nodeorder")),
    ),
)
"""What is in force where nobody has written anything: Volcano's own default."""
