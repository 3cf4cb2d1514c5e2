"""One record a pod: what we know of it, its state, and the story of how it got there.

    WAITING ── decided ──> ASSUMED ── seen bound ──> HELD
     │   ^                  │   ^
     │   └─ binding refused ┘   │
     └── others must leave ──> NOMINATED

A pod that is not ours to place, or that cannot be placed as it is (gates, an amount that means nothing), is ASIDE until
it changes or is bound.  If its own scheduler has recorded a node and cards already, it holds them from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.scheduler.story import Moment, Sentence, Story, Word, longer
from subak.scheduler.waiting import Ticket


class State(Enum):
    """Where a pod is in its life."""

    ASIDE = "not ours to place"
    WAITING = "waiting for a place"
    NOMINATED = "waiting for others to leave its place"
    ASSUMED = "decided, not yet seen bound"
    HELD = "bound"


@dataclass(slots=True)
class Record:
    """A pod; `key` is its `namespace/name`.

    `carried` are the annotations of `pod` that record its allocation; `see` sets both together.  `since` is when it was
    first seen.  `node` is where the pod waits, is assumed or bound.  `annotations` are the record that counts: ours,
    from the decision on, or the one it was bound with, even if somebody changes it on the pod.  `digest` is the
    description of the node by which it was booked.  `known` says whether the annotations name its cards.  `came` is
    when it was decided, or else first seen bound.  `edited` is the last change by others that we undid, `reported` the
    last message to its user.  `evicted` says that we have sent it away, `batched` that sessions decide on it
    (`scheduler.batcher`): its ticket is not in the line.
    """

    key: str
    pod: manifest.Pod
    carried: dict[str, str]
    since: Moment
    state: State = State.ASIDE
    node: str = ""
    ticket: Ticket | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    digest: Node | None = None
    known: bool = True
    came: Moment = field(default_factory=Moment)
    edited: dict[str, str] | None = None
    reported: str = ""
    evicted: bool = False
    batched: bool = False
    story: Story = ()

    @property
    def leaving(self) -> bool:
        """Whether the pod leaves its node: it is being deleted, or must go for a more important one."""
        return self.evicted or self.pod.metadata.deletion_timestamp is not None or self.pod.preempted

    def see(self, pod: manifest.Pod, carried: dict[str, str]) -> None:
        """Take in the pod as it is now, and the record that it carries."""
        self.pod, self.carried = pod, carried

    def note(self, moment: Moment, word: Word, detail: str | Placement = "") -> None:
        """Add to its story."""
        self.story = longer(self.story, Sentence(moment, word, detail))
