"""Pods that must be near to others, or away from them; domains are made by a label of the nodes (`topologyKey`).

    affinity       the node's domains hold a pod that all the pod's terms mean; the first of a group needs none, if no
                   such pod runs anywhere and the terms mean the pod itself
    anti-affinity  no domain of the node holds a pod that one of the pod's terms means
    and the other way round: no domain of the node holds a pod that states a term that means this pod

The third also concerns pods that state nothing.  So what is read of a pod are the terms of running pods that mean it:
nothing, where nobody states any.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Self

from subak.model import manifest
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Request
from subak.model.selector import described
from subak.policy import Across
from subak.policy.judged import Judged, Memory, Objection
from subak.policy.stated import avoided, demanded
from subak.snapshot.carriers import Carried, Carriers
from subak.snapshot.census import Census, Query
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools, Column, Pool, Verdicts
from subak.snapshot.topology import Domains
from subak.snapshot.watcher import Change


@dataclass(frozen=True, slots=True)
class Company:
    """What keeps a pod near to others and away from them.

    `near` are the pods that all its affinity terms mean, and `keys` the labels of these terms; with `first` they mean
    the pod itself.  `away` are the terms of its anti-affinity, `against` those of running pods that mean this pod.
    """

    near: Query | None
    keys: tuple[str, ...]
    first: bool
    away: tuple[tuple[Query, str], ...]
    against: frozenset[Carried]


class PodAffinity(Across):
    """Required pod affinity and anti-affinity."""

    name = "pod affinity"
    cures = frozenset({Change.NAMESPACE_CHANGED})

    def __init__(self, snapshot: Snapshot) -> None:
        self._note = snapshot.note
        self._census = snapshot.watched(Census)
        self._topology = self._census.topology
        self._carriers = Carriers(self._topology)
        self._relabelled = 0
        self._memory = Memory(self._topology, self._judge)

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    @property
    def epoch(self) -> int:
        return self._carriers.news + self._relabelled

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        labels = self._census.labels_of(pod.namespace)
        against, near, away = self._carriers.meaning(pod, labels), demanded(pod), avoided(pod)
        if not near and not away and not against:
            return None
        terms = [term for term, _, _ in near]
        return Company(
            self._census.query(*terms) if terms else None,
            tuple([key for _, key, _ in near]),
            all(term.means(pod.namespace, labels, pod.labels) for term in terms),
            tuple([(self._census.query(term), key) for term, key, _ in away]),
            against,
        )

    def cured_by(self, request: Request) -> frozenset[Hashable]:
        wants = self._wants(request)
        keys = {*wants.keys, *[key for _, key in wants.away], *[each.key for each in wants.against]}
        pods = [query for query in (wants.near, *[query for query, _ in wants.away]) if query is not None]
        others = [each.stated for each in wants.against]
        return frozenset([*self.cures, *pods, *others, *map(self._topology.domains, keys)])

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        return self._memory.refuse(node, request)

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        return self._memory.verdicts(pool, request)

    def pod_came(self, pod: manifest.Pod, node: str) -> None:
        self._carry(pod, node, 1)

    def pod_left(self, pod: manifest.Pod, node: str) -> None:
        self._carry(pod, node, -1)

    def namespace_seen(self, name: str, labels: Mapping[str, str]) -> None:
        self._relabelled += 1

    def namespace_gone(self, name: str) -> None:
        self._relabelled += 1

    def _carry(self, pod: manifest.Pod, node: str, amount: int) -> None:
        for stated in avoided(pod):
            self._carriers.count(stated, node, amount)
            self._note(stated)

    def _wants(self, request: Request) -> Company:
        wants = request.read(self.name)
        assert isinstance(wants, Company), "only requests of which something was read are judged"
        return wants

    def _judge(self, request: Request) -> Judged:
        wants, domains = self._wants(request), self._topology.domains
        objections = [] if wants.near is None else self._too_far(wants.near, wants)
        for query, key in wants.away:
            words = f"didn't match pod anti-affinity rules: pods with {_meant(query)} in the same {key}"
            refusal = NodeRefusal(Reason.POD_ANTI_AFFINITY_MISMATCH, words)
            objections.append((_in_company(domains(key), query.by_node), refusal))
        for each in sorted(wants.against, key=lambda each: (each.key, described(each.term.selector))):
            words = f"didn't satisfy existing pods' anti-affinity rules: pods in the same {each.key} keep away from "
            refusal = NodeRefusal(Reason.EXISTING_PODS_ANTI_AFFINITY, words + described(each.term.selector))
            objections.append((_in_company(domains(each.key), each.by_node), refusal))
        return Judged(self._topology.nodes.room, objections)

    def _too_far(self, near: Query, wants: Company) -> list[Objection]:
        """Nodes that lack a label of the affinity, or company in one of its domains."""
        objections: list[Objection] = []
        alone: list[Objection] = []
        anybody = False
        for key in wants.keys:
            domains = self._topology.domains(key)
            lacks = NodeRefusal(Reason.POD_AFFINITY_MISMATCH, f"didn't match pod affinity rules: no label {key}")
            objections.append((domains.of == 0, lacks))
            company = _in_company(domains, near.by_node)
            anybody = anybody or bool(company.any())
            words = f"didn't match pod affinity rules: no pod with {_meant(near)} in the same {key}"
            alone.append((~company, NodeRefusal(Reason.POD_AFFINITY_MISMATCH, words)))
        return objections if wants.first and not anybody else objections + alone


def _in_company(domains: Domains, by_node: Column) -> Bools:
    """For each node whether its domain holds one of these pods."""
    there: Bools = (domains.sums(by_node) > 0)[domains.of]
    return there


def _meant(query: Query) -> str:
    return " and ".join(dict.fromkeys(described(term.selector) for term in query.terms))
