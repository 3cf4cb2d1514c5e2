"""What a `volcano-scheduler.conf` says: which actions, in which order, and which plugins they ask, tier by tier."""

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
    """The whole file.  `arguments` are those of actions, `warnings` what an administrator should know about it."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[Option, ...], ...]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


DEFAULT = Configuration(
    ("enqueue", "allocate", "backfill"),
    (
        (Option("priority"), Option("gang"), Option("conformance")),
        (Option("overcommit"), Option("drf"), Option("predicates"), Option("proportion"), Option("nodeorder")),
    ),
)
"""What is in force where nobody has written anything: Volcano's own default."""
