"""Rules about other pods, slow and obvious: every answer goes through all nodes and all pods again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from subak.model import manifest
from subak.model.manifest import LabelSelector, PodTerm, SpreadConstraint
from subak.model.node import Node
from subak.model.request import Needs
from subak.policy.node import refuse_labels, refuse_taints

Labels = Mapping[str, str]


@dataclass
class Neighbours:
    """Nodes, pods with the names of their nodes, and labels of namespaces."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, tuple[manifest.Pod, str]] = field(default_factory=dict)
    namespaces: dict[str, Labels] = field(default_factory=dict)

    def takes(self, pod: manifest.Pod, needs: Needs, node: Node) -> bool:
        """Whether no rule keeps the pod off the node."""
        return (
            self.ports_free(pod, node)
            and self.near_enough(pod, node)
            and self.far_enough(pod, node)
            and self.spread(pod, needs, node)
        )

    # Host ports

    def ports_free(self, pod: manifest.Pod, node: Node) -> bool:
        taken = [port for other, where in self.pods.values() if where == node.name for port in _ports(other)]
        return not any(_collide(one, other) for one in _ports(pod) for other in taken)

    # Affinity

    def meant(self, term: PodTerm, owner: manifest.Pod, pod: manifest.Pod) -> bool:
        """Whether a term of one pod means another."""
        if term.namespace_selector is None and not term.namespaces:
            there = pod.namespace == owner.namespace
        else:
            labels = self.namespaces.get(pod.namespace, {})
            there = pod.namespace in (term.namespaces or ()) or _matches(term.namespace_selector, labels)
        if not there or not _matches(term.label_selector, pod.labels):
            return False
        same = all(
            pod.labels.get(key) == owner.labels[key] for key in term.match_label_keys or () if key in owner.labels
        )
        other = all(
            pod.labels.get(key) != owner.labels[key] for key in term.mismatch_label_keys or () if key in owner.labels
        )
        return same and other

    def together(self, key: str, where: str, node: Node) -> bool:
        """Whether a node is in the same domain as another."""
        other = self.nodes.get(where)
        return other is not None and key in node.labels and other.labels.get(key) == node.labels[key]

    def near_enough(self, pod: manifest.Pod, node: Node) -> bool:
        terms = _near(pod)
        if any(term.topology_key not in node.labels for term in terms):
            return False
        company = [
            where
            for other, where in self.pods.values()
            if where in self.nodes and all(self.meant(term, pod, other) for term in terms)
        ]
        counted = [where for where in company if any(term.topology_key in self.nodes[where].labels for term in terms)]
        if not counted and all(self.meant(term, pod, pod) for term in terms):
            return True
        return all(any(self.together(term.topology_key, where, node) for where in company) for term in terms)

    def far_enough(self, pod: manifest.Pod, node: Node) -> bool:
        for term in _away(pod):
            for other, where in self.pods.values():
                if self.meant(term, pod, other) and self.together(term.topology_key, where, node):
                    return False
        for other, where in self.pods.values():
            for term in _away(other):
                if self.meant(term, other, pod) and self.together(term.topology_key, where, node):
                    return False
        return True

    # Spread

    def spread(self, pod: manifest.Pod, needs: Needs, node: Node) -> bool:
        constraints = _constraints(pod, "DoNotSchedule")
        for each in constraints:
            key = each.topology_key
            if key not in node.labels:
                return False
            counted = self.counted(constraints, each, needs)
            domains = {
                value: sum(self.alike(each, pod, there.name) for there in counted if there.labels[key] == value)
                for value in {there.labels[key] for there in counted}
            }
            fewest = min(domains.values()) if len(domains) >= (each.min_domains or 1) else 0
            own = _matches(each.label_selector, pod.labels)
            if domains.get(node.labels[key], 0) + own - fewest > each.max_skew:
                return False
        return True

    def counted(self, constraints: list[SpreadConstraint], each: SpreadConstraint, needs: Needs) -> list[Node]:
        """The nodes whose pods count for a constraint."""
        return [
            node
            for node in self.nodes.values()
            if all(other.topology_key in node.labels for other in constraints)
            and (each.node_affinity_policy == "Ignore" or refuse_labels(node, needs) is None)
            and (each.node_taints_policy != "Honor" or refuse_taints(node, needs) is None)
        ]

    def alike(self, constraint: SpreadConstraint, pod: manifest.Pod, name: str) -> int:
        """How many pods on a node count for a constraint of the pod."""
        selector = constraint.label_selector
        if selector is None or not (selector.match_labels or selector.match_expressions or constraint.match_label_keys):
            return 0
        keys = [key for key in constraint.match_label_keys or () if key in pod.labels]
        return sum(
            where == name
            and other.namespace == pod.namespace
            and other.metadata.deletion_timestamp is None
            and _matches(selector, other.labels)
            and all(other.labels.get(key) == pod.labels[key] for key in keys)
            for other, where in self.pods.values()
        )

    # Preferences

    def points(self, pod: manifest.Pod, needs: Needs, possible: list[Node]) -> dict[str, int]:
        """The weighed points of each of the nodes."""
        company, spread = self._company(pod, possible), self._even(pod, needs, possible)
        taints, liked = self._taints(needs, possible), self._liked(pod, possible)
        return {
            node.name: 3 * taints[node.name] + 2 * (liked[node.name] + spread[node.name] + company[node.name])
            for node in possible
        }

    def _taints(self, needs: Needs, possible: list[Node]) -> dict[str, int]:
        count = {
            node.name: sum(
                refuse_taints(Node("x", taints=(manifest.Taint(key=t.key, value=t.value, effect="NoSchedule"),)), soft)
                is not None
                for t in node.taints
                if t.effect == "PreferNoSchedule"
            )
            for node in possible
            for soft in [_as_hard(needs)]
        }
        most = max(count.values(), default=0)
        if not any(t.effect == "PreferNoSchedule" for node in self.nodes.values() for t in node.taints):
            return dict.fromkeys(count, 0)
        return {name: 100 - (100 * each // most if most else 0) for name, each in count.items()}

    def _liked(self, pod: manifest.Pod, possible: list[Node]) -> dict[str, int]:
        affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
        terms = (affinity and affinity.preferred_during_scheduling_ignored_during_execution) or ()
        count = {
            node.name: sum(
                each.weight
                for each in terms
                if refuse_labels(node, Needs(terms=((tuple(each.preference.match_expressions or ()), ()),))) is None
            )
            for node in possible
        }
        most = max(count.values(), default=0)
        return {name: 100 * each // most if most else 0 for name, each in count.items()}

    def _company(self, pod: manifest.Pod, possible: list[Node]) -> dict[str, int]:
        total = dict.fromkeys([node.name for node in possible], 0)
        for node in possible:
            for other, where in self.pods.values():
                for weight, term in [*_soft(pod)]:
                    if self.meant(term, pod, other) and self.together(term.topology_key, where, node):
                        total[node.name] += weight
                demanded = _near(other)
                for weight, term in [*_soft(other), *[(1, term) for term in demanded]]:
                    if self.meant(term, other, pod) and self.together(term.topology_key, where, node):
                        total[node.name] += weight
        low, high = min(total.values(), default=0), max(total.values(), default=0)
        return {name: 100 * (each - low) // (high - low) if high > low else 0 for name, each in total.items()}

    def _even(self, pod: manifest.Pod, needs: Needs, possible: list[Node]) -> dict[str, int]:
        constraints = _constraints(pod, "ScheduleAnyway")
        if not constraints:
            return {node.name: 0 for node in possible}
        labelled = [node for node in possible if all(each.topology_key in node.labels for each in constraints)]
        loads = {
            node.name: math.floor(
                sum(self._load(pod, needs, each, constraints, node, labelled) for each in constraints) + 0.5
            )
            for node in labelled
        }
        low, high = min(loads.values(), default=0), max(loads.values(), default=0)
        points = {name: 100 * (high + low - load) // high if high else 100 for name, load in loads.items()}
        return {node.name: points.get(node.name, 0) for node in possible}

    def _load(
        self,
        pod: manifest.Pod,
        needs: Needs,
        each: SpreadConstraint,
        constraints: list[SpreadConstraint],
        node: Node,
        labelled: list[Node],
    ) -> float:
        key = each.topology_key
        if key == "kubernetes.io/hostname":
            count, size = self.alike(each, pod, node.name), len(labelled)
        else:
            counted = self.counted(constraints, each, needs)
            count = sum(self.alike(each, pod, there.name) for there in counted if there.labels[key] == node.labels[key])
            size = len({there.labels[key] for there in labelled})
        return count * math.log(size + 2) + each.max_skew - 1


def _as_hard(needs: Needs) -> Needs:
    """The tolerations that concern soft taints, as if these were hard."""
    found = [
        manifest.Toleration(key=t.key, operator=t.operator, value=t.value)
        for t in needs.tolerations
        if t.effect in ("", "PreferNoSchedule")
    ]
    return Needs(tolerations=tuple(found))


def _ports(pod: manifest.Pod) -> Iterable[manifest.Port]:
    early = [each for each in pod.spec.init_containers or () if each.restart_policy == "Always"]
    return [port for each in (*early, *pod.spec.containers) for port in each.ports or () if port.host_port]


def _collide(one: manifest.Port, other: manifest.Port) -> bool:
    everywhere = {"", "0.0.0.0"} & {one.host_ip, other.host_ip}
    same = (one.host_port, one.protocol) == (other.host_port, other.protocol)
    return same and (bool(everywhere) or one.host_ip == other.host_ip)


def _required(affinity: manifest.PodAffinity | None) -> list[PodTerm]:
    return (affinity and affinity.required_during_scheduling_ignored_during_execution) or []


def _near(pod: manifest.Pod) -> list[PodTerm]:
    return [] if pod.spec.affinity is None else _required(pod.spec.affinity.pod_affinity)


def _away(pod: manifest.Pod) -> list[PodTerm]:
    return [] if pod.spec.affinity is None else _required(pod.spec.affinity.pod_anti_affinity)


def _soft(pod: manifest.Pod) -> Iterable[tuple[int, PodTerm]]:
    affinity = pod.spec.affinity
    if affinity is not None:
        for sign, each in ((1, affinity.pod_affinity), (-1, affinity.pod_anti_affinity)):
            for wish in (each and each.preferred_during_scheduling_ignored_during_execution) or ():
                yield sign * wish.weight, wish.pod_affinity_term


def _constraints(pod: manifest.Pod, sort: str) -> list[SpreadConstraint]:
    return [each for each in pod.spec.topology_spread_constraints or () if each.when_unsatisfiable == sort]


def _matches(selector: LabelSelector | None, labels: Labels) -> bool:
    if selector is None:
        return False
    equal = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return equal and all(line.holds(labels) for line in selector.match_expressions or ())
