"""All policies by name.  To add one, write its file and name it here; `policy` states what it must do."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from subak.model import manifest
from subak.model.request import BINPACK, LEAST_ALLOCATED, MOST_ALLOCATED, SPREAD, Pick, Request
from subak.policy import Across, CardPick, Filter, NodeScore, Preference, pick
from subak.policy.affinity import PodAffinity
from subak.policy.allocated import Allocated
from subak.policy.by_variables import ByVariables
from subak.policy.mixture import Mixed
from subak.policy.node import Offered, Terms
from subak.policy.ports import HostPorts
from subak.policy.preferred_nodes import FewerTaints, PreferredNodes
from subak.policy.preferred_pods import PreferredPods
from subak.policy.preferred_spread import EvenSpread
from subak.policy.score import Use
from subak.policy.spread import TopologySpread
from subak.policy.volumes import Volumes
from subak.snapshot.cluster import Snapshot

FILTERS: dict[str, Filter] = {each.name: each for each in (Terms(), Offered(), ByVariables())}
"""In the order in which a node is asked; the first that refuses gives the reason."""

ACROSS: dict[str, type[Across]] = {each.name: each for each in (HostPorts, PodAffinity, TopologySpread, Volumes)}

PREFERENCES: dict[str, type[Preference]] = {
    each.name: each for each in (FewerTaints, PreferredNodes, PreferredPods, EvenSpread)
}

SCORES: dict[str, NodeScore] = {
    each.name: each
    for each in (Use(BINPACK, 1), Use(SPREAD, -1), Allocated(LEAST_ALLOCATED), Allocated(MOST_ALLOCATED))
}

MIXED = Mixed()
"""The score of requests that have a mixture, whatever they name."""

PICKS: dict[str, CardPick] = {
    Pick.IN_ORDER: pick.first,
    Pick.LINKS: pick.best_linked,
    Pick.TREE: pick.by_tree,
    Pick.RULES: pick.by_rules,
}


def score_of(request: Request) -> NodeScore:
    """The score that the request names; a name that nobody knows means binpack, as HAMi has it."""
    if request.mixture is not None:
        return MIXED
    return SCORES.get(request.node_policy) or SCORES[BINPACK]


def shaped(snapshot: Snapshot, request: Request, pod: manifest.Pod) -> Request:
    """The request with all that policies read of the pod besides."""
    policies: list[Filter | NodeScore | Preference] = [*FILTERS.values(), score_of(request)]
    policies += [snapshot.watched(kind) for kind in ACROSS.values()]
    policies += [snapshot.watched(kind) for kind in PREFERENCES.values()]
    reads = tuple([(each.name, read) for each in policies if (read := each.reads(pod)) is not None])
    return replace(request, reads=reads) if reads or request.reads else request


def local(request: Request) -> Request:
    """The request without what only policies across nodes read: pods that differ in nothing else share scores."""
    reads = tuple([(name, read) for name, read in request.reads if name not in ACROSS and name not in PREFERENCES])
    return request if len(reads) == len(request.reads) else replace(request, reads=reads)


def across(snapshot: Snapshot, request: Request) -> list[Across]:
    """The filters across nodes that have a say about the request."""
    if not request.reads:
        return []
    return [snapshot.watched(kind) for name, kind in ACROSS.items() if request.read(name) is not None]


def filters(snapshot: Snapshot, request: Request) -> list[Filter]:
    """All filters that have a say about the request."""
    return [*FILTERS.values(), *across(snapshot, request)]


def preferences(snapshot: Snapshot, request: Request) -> list[Preference]:
    """The preferences that concern the request."""
    watched = [snapshot.watched(kind) for kind in PREFERENCES.values()]
    return [each for each in watched if each.concerns(request)]


def cures(snapshot: Snapshot, request: Request) -> frozenset[Hashable]:
    """What may cure a refusal by filters across nodes."""
    return frozenset[Hashable]().union(*[each.cured_by(request) for each in across(snapshot, request)])
