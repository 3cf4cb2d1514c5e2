"""Pods that must spread evenly over domains, which are made by a label of the nodes (`topologyKey`).

    skew(domain) = pods in the domain that the constraint means + 1 if it means the pod itself - fewest in any domain
    refused      = skew > maxSkew, or the node has not the label

Counted are pods of the pod's own namespace that are not being deleted, on nodes that have the labels of all constraints
and are eligible: by default those that the pod's node selector and node affinity admit (`nodeAffinityPolicy`), whatever
their taints (`nodeTaintsPolicy`).  If there are fewer than `minDomains` domains, the fewest are taken as none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Needs, Request
from subak.model.selector import Term, chosen, selector, with_labels
from subak.policy import Across
from subak.policy.judged import Judged, Memory, Objection
from subak.policy.node import refuse_labels, refuse_taints
from subak.snapshot.census import Census, Query
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Pool, Verdicts
from subak.snapshot.topology import Topology
from subak.snapshot.watcher import Change

HONOR, IGNORE = "Honor", "Ignore"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint as a pod states it; `pods` are those it means, `own` says whether the pod is one of them."""

    key: str
    max_skew: int
    min_domains: int
    pods: Query
    own: bool
    by_labels: bool
    by_taints: bool


Constraints = tuple[Constraint, ...]


class TopologySpread(Across):
    """Topology spread constraints that must hold."""

    name = "topology spread"
    cures = frozenset({Change.NODE_CHANGED})

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._census = snapshot.watched(Census)
        self._topology = self._census.topology
        self._memory = Memory(self._topology, self._judge)

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        return constraints(pod, HARD, self._census) or None

    def cured_by(self, request: Request) -> frozenset[Hashable]:
        return frozenset([*self.cures, *[each.pods for each in stated(request, self.name)]])

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        return self._memory.refuse(node, request)

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        return self._memory.verdicts(pool, request)

    def _judge(self, request: Request) -> Judged:
        all_of_them = stated(request, self.name)
        labelled = with_all_labels(self._topology, all_of_them)
        objections: list[Objection] = []
        for each in all_of_them:
            domains = self._topology.domains(each.key)
            lacks = f"didn't match pod topology spread constraints: no label {each.key}"
            objections.append((domains.of == 0, NodeRefusal(Reason.TOPOLOGY_SPREAD_MISMATCH, lacks)))
            counted = labelled & eligible(self._snapshot, self._topology, request.needs, each)
            pods = domains.sums(np.where(counted, each.pods.by_node, 0))
            present = domains.sums(counted) > 0
            skew = (pods + each.own - _fewest(pods[present], each.min_domains))[domains.of]
            objections += _too_skewed(np.where(domains.of, skew, 0), each)
        return Judged(self._topology.nodes.room, objections)


def constraints(pod: manifest.Pod, sort: str, census: Census) -> Constraints:
    """The pod's constraints of one sort."""
    found: list[Constraint] = []
    for each in pod.spec.topology_spread_constraints or ():
        if each.when_unsatisfiable == sort:
            lines = with_labels(selector(each.label_selector), pod.labels, each.match_label_keys or ())
            # kube-scheduler counts no pods for a selector that chooses all of them.
            pods = census.query(Term(frozenset((pod.namespace,)), None, lines or None), living=True)
            found.append(
                Constraint(
                    each.topology_key,
                    each.max_skew,
                    each.min_domains or 1,
                    pods,
                    chosen(lines, pod.labels),
                    (each.node_affinity_policy or HONOR) == HONOR,
                    (each.node_taints_policy or IGNORE) == HONOR,
                )
            )
    return tuple(found)


def stated(request: Request, name: str) -> Constraints:
    """The constraints that the policy of this name has read."""
    found = request.read(name)
    assert isinstance(found, tuple), "only requests of which something was read are judged"
    return found


def with_all_labels(topology: Topology, several: Sequence[Constraint]) -> Bools:
    """The nodes that have the labels of all constraints."""
    labelled: Bools = np.logical_and.reduce([topology.domains(each.key).of > 0 for each in several])
    return labelled


def eligible(snapshot: Snapshot, topology: Topology, needs: Needs, constraint: Constraint) -> Bools:
    """The nodes whose pods count for the constraint, by their numbers."""
    found: Bools = np.zeros(topology.nodes.room, np.bool_)
    for pool in snapshot.pools:
        passes: Bools = pool.present
        if constraint.by_labels and (needs.selector or needs.terms is not None):
            judge = partial(refuse_labels, needs=needs)
            passes = passes & pool.verdicts(("labels", needs.selector, needs.terms), judge).passes[: pool.size]
        if constraint.by_taints:
            judge = partial(refuse_taints, needs=needs)
            passes = passes & pool.verdicts(("taints", needs.tolerations), judge).passes[: pool.size]
        found[topology.positions(pool)[: pool.size]] = passes
    return found


def _fewest(pods: Column, min_domains: int) -> int:
    return int(pods.min()) if len(pods) >= min_domains else 0


def _too_skewed(skew: Column, constraint: Constraint) -> list[Objection]:
    """An objection for each skew that is too large: most nodes of a cluster have the same few."""
    words = "didn't match pod topology spread constraints: {} would have skew {:,}, at most {:,} allowed"
    return [
        (
            skew == each,
            NodeRefusal(Reason.TOPOLOGY_SPREAD_MISMATCH, words.format(constraint.key, each, constraint.max_skew)),
        )
        for each in np.unique(skew[skew > constraint.max_skew]).tolist()
    ]
