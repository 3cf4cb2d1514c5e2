"""Which nodes a pod's volumes are within reach of, as far as the nodes' labels tell.

    a bound volume     its node affinity holds, and the node is in one of the zones and regions of its labels
    a new volume       its class is provisioned for the node, and has room left there

A `Reach` is a value: the answers for all nodes are remembered under it, without the names of volumes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from subak.model.manifest import Expression, LabelSelector
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.volume import Terms, TopologyTerm, Volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_NEW = {OLD_ZONE: ZONE, OLD_REGION: REGION}
TOPOLOGY = (OLD_ZONE, OLD_REGION, ZONE, REGION)

Lines = tuple[Expression, ...]
"""A selector of labels, as lines that must all hold."""


@dataclass(frozen=True, slots=True)
class Provision:
    """A volume that is made.  `room` selects the nodes for which enough is left; None if nobody counts."""

    class_name: str
    provisions: bool
    topologies: tuple[TopologyTerm, ...] = ()
    room: tuple[Lines, ...] | None = None
    asked: str = ""

    @property
    def picky(self) -> bool:
        """Whether it demands anything of a node."""
        return not self.provisions or bool(self.topologies) or self.room is not None

    def judge(self, labels: Mapping[str, str]) -> Reason | None:
        """Why the volume cannot be made for a node with these labels."""
        if not self.provisions:
            return Reason.VOLUME_NOT_AVAILABLE
        if self.topologies and not any(term.holds(labels) for term in self.topologies):
            return Reason.VOLUME_NODE_CONFLICT
        if self.room is not None and not any(_all(lines, labels) for lines in self.room):
            return Reason.VOLUME_INSUFFICIENT_CAPACITY
        return None

    def tell(self, reason: Reason) -> NodeRefusal:
        """The same in words."""
        match reason:
            case Reason.VOLUME_NOT_AVAILABLE:
                text = f"no volume of class {self.class_name} fits, and the class makes none"
            case Reason.VOLUME_NODE_CONFLICT:
                text = f"class {self.class_name} makes no volumes for such nodes"
            case _:
                text = f"class {self.class_name} has no {self.asked} left for the node"
        return NodeRefusal(reason, text)

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the volume cannot be made for this node."""
        reason = self.judge(node.labels)
        return None if reason is None else self.tell(reason)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A bound volume: the terms of its node affinity, and its zones by the label that names them.

    Volumes that demand the same are equal, so that pods with volumes in one zone share the answers.
    """

    volume: str = field(compare=False)
    terms: Terms | None = None
    zones: tuple[tuple[str, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, volume: Volume, zoned: bool) -> Fixed:
        """What a volume demands; without `zoned` its zone labels do not count."""
        found = tuple((key, zones(volume.labels[key])) for key in TOPOLOGY if zoned and key in volume.labels)
        return cls(volume.name, volume.terms, tuple((key, values) for key, values in found if values))

    @property
    def picky(self) -> bool:
        """Whether it demands anything of a node."""
        return self.terms is not None or bool(self.zones)

    def judge(self, labels: Mapping[str, str]) -> Reason | None:
        """Why a node with these labels does not reach the volume."""
        if not within(self.terms, labels):
            return Reason.VOLUME_NODE_CONFLICT
        zoned = any(key in labels for key in TOPOLOGY)  # otherwise it is a cluster without zones
        if zoned and any(labels.get(key, labels.get(_NEW.get(key, key))) not in values for key, values in self.zones):
            return Reason.VOLUME_ZONE_CONFLICT
        return None

    def tell(self, reason: Reason) -> NodeRefusal:
        """The same in words."""
        if reason is Reason.VOLUME_NODE_CONFLICT:
            return NodeRefusal(reason, f"volume {self.volume} is not within reach of the node")
        where = ", ".join(f"{key.rpartition('/')[2]} {' or '.join(sorted(values))}" for key, values in self.zones)
        return NodeRefusal(reason, f"volume {self.volume} is in {where}")

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the node does not reach the volume."""
        reason = self.judge(node.labels)
        return None if reason is None else self.tell(reason)


@dataclass(frozen=True, slots=True)
class Reach:
    """All that labels decide about a pod's volumes."""

    fixed: tuple[Fixed, ...] = ()
    provisions: tuple[Provision, ...] = ()

    @property
    def demands(self) -> tuple[Fixed | Provision, ...]:
        """All demands, in the order in which they are made."""
        return (*self.fixed, *self.provisions)

    def judge(self, node: Node) -> tuple[int, Reason] | None:
        """Which demand the node does not meet, and why."""
        judged = ((at, each.judge(node.labels)) for at, each in enumerate(self.demands))
        return next(((at, reason) for at, reason in judged if reason is not None), None)

    def tell(self, verdict: Hashable | None) -> NodeRefusal | None:
        """The same in words."""
        if not isinstance(verdict, tuple):
            return None
        at, reason = verdict
        return self.demands[at].tell(reason)

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the node is out of reach of one of the volumes."""
        return self.tell(self.judge(node))


def within(terms: Terms | None, labels: Mapping[str, str]) -> bool:
    """Whether one of the terms holds of a node with these labels; a volume's terms can say nothing of its name."""
    if terms is None:
        return True
    return any((labelled or fields) and _all(labelled, labels) and _all(fields, {}) for labelled, fields in terms)


def zones(text: str) -> frozenset[str]:
    """The zones in a label, which separates them by `__`; none at all if one of them is empty."""
    found = frozenset(each.strip() for each in text.split("__"))
    return frozenset() if "" in found else found


def lines(selector: LabelSelector) -> Lines:
    """A selector as lines."""
    pairs = (selector.match_labels or {}).items()
    exact = (Expression(key=key, operator="In", values=(value,)) for key, value in pairs)
    return (*exact, *(selector.match_expressions or ()))


def _all(lines: Lines, labels: Mapping[str, str]) -> bool:
    return all(line.holds(labels) for line in lines)
