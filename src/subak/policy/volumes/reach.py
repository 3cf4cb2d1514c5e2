"""Which nodes a pod's volumes are within reach of, as far as the nodes' labels tell.

    a bound volume     its node affinity holds, and the node is in one of the zones and regions of its labels
    a new volume       its class is provisioned for the node, and has room left there

A `Reach` is a value: the answers for all nodes are remembered under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from subak.model.manifest import Expression
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.volume import Selector, Terms, TopologyTerm, Volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_NEW = {OLD_ZONE: ZONE, OLD_REGION: REGION}
TOPOLOGY = (OLD_ZONE, OLD_REGION, ZONE, REGION)

Lines = tuple[Expression, ...]
"""A selector of labels, as lines that must all hold."""


@dataclass(frozen=True, slots=True)
class Provision:
    """A volume that is made for a claim.  `room` selects the nodes for which enough is left; None if nobody counts."""

    claim: str
    class_name: str
    provisions: bool
    topologies: tuple[TopologyTerm, ...] = ()
    room: tuple[Lines, ...] | None = None
    asked: str = ""

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the volume cannot be made for this node."""
        if not self.provisions:
            return NodeRefusal(
                Reason.VOLUME_NOT_AVAILABLE,
                f"no volume fits claim {self.claim}, and class {self.class_name} makes none",
            )
        if self.topologies and not any(term.holds(node.labels) for term in self.topologies):
            return NodeRefusal(Reason.VOLUME_NOT_AVAILABLE, f"class {self.class_name} makes no volumes for such nodes")
        if self.room is not None and not any(_all(lines, node.labels) for lines in self.room):
            return NodeRefusal(
                Reason.VOLUME_INSUFFICIENT_CAPACITY,
                f"class {self.class_name} has no {self.asked} left for claim {self.claim}",
            )
        return None


@dataclass(frozen=True, slots=True)
class Fixed:
    """A bound volume: the terms of its node affinity, and its zones by the label that names them."""

    volume: str
    terms: Terms | None = None
    zones: tuple[tuple[str, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, volume: Volume, zoned: bool) -> Fixed:
        """What a volume demands; without `zoned` its zone labels do not count."""
        found = tuple((key, zones(volume.labels[key])) for key in TOPOLOGY if zoned and key in volume.labels)
        return cls(volume.name, volume.terms, tuple((key, values) for key, values in found if values))

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the node does not reach the volume."""
        if not within(self.terms, node.labels):
            return NodeRefusal(Reason.VOLUME_NODE_CONFLICT, f"volume {self.volume} is not within reach of the node")
        if self.zones and any(key in node.labels for key in TOPOLOGY):
            for key, values in self.zones:
                if node.labels.get(key, node.labels.get(_NEW.get(key, key))) not in values:
                    where = f"{key.rpartition('/')[2]} {', '.join(sorted(values))}"
                    return NodeRefusal(Reason.VOLUME_ZONE_CONFLICT, f"volume {self.volume} is in {where}")
        return None


@dataclass(frozen=True, slots=True)
class Reach:
    """All that labels decide about a pod's volumes."""

    fixed: tuple[Fixed, ...] = ()
    provisions: tuple[Provision, ...] = ()

    def refuse(self, node: Node) -> NodeRefusal | None:
        """Why the node is out of reach of one of them."""
        demands: tuple[Fixed | Provision, ...] = (*self.fixed, *self.provisions)
        refusals = (each.refuse(node) for each in demands)
        return next((refusal for refusal in refusals if refusal is not None), None)


def within(terms: Terms | None, labels: Mapping[str, str]) -> bool:
    """Whether one of the terms holds of a node with these labels; a volume's terms can say nothing of its name."""
    if terms is None:
        return True
    return any((labelled or fields) and _all(labelled, labels) and _all(fields, {}) for labelled, fields in terms)


def zones(text: str) -> frozenset[str]:
    """The zones in a label, which separates them by `__`; none at all if one of them is empty."""
    found = frozenset(each.strip() for each in text.split("__"))
    return frozenset() if "" in found else found


def lines(selector: Selector) -> Lines:
    """A selector as lines."""
    pairs = (selector.match_labels or {}).items()
    exact = (Expression(key=key, operator="In", values=(value,)) for key, value in pairs)
    return (*exact, *(selector.match_expressions or ()))


def _all(lines: Lines, labels: Mapping[str, str]) -> bool:
    return all(line.holds(labels) for line in lines)
