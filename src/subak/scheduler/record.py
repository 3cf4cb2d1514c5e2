"""One record a pod: what is known of it, and its state.

    WAITING ── decided ──> ASSUMED ── seen bound ──> HELD
       ^                      │
       └── binding refused ───┘

A pod that is not ours to place, or that cannot be placed as it is (gates, an amount that means nothing), is ASIDE until
it changes or is bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.scheduler.waiting import Ticket


class State(Enum):
    """Where a pod is in its life."""

    ASIDE = "not ours to place"
    WAITING = "waiting for a place"
    ASSUMED = "decided, not yet seen bound"
    HELD = "bound"


@dataclass(slots=True)
class Record:
    """A pod; `key` is its `namespace/name`.

    `node` is where it is assumed or bound.  `annotations` are those that record its allocation: ours, from the decision
    on, or the ones it was bound with.  They count even if somebody changes them on the pod.  `digest` is the
    description of the node by which it was booked.  `known` says whether the annotations told the very cards.
    `counted` is what its namespace's quota counts.  `edited` is the change by somebody else that was last undone.
    """

    key: str
    pod: manifest.Pod
    state: State = State.ASIDE
    node: str = ""
    ticket: Ticket | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    digest: Node | None = None
    known: bool = True
    counted: Placement | None = None
    edited: dict[str, str] | None = None
    told: str = ""
