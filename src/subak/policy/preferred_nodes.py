"""Nodes that a pod would rather have, by their description: few unwelcome taints, and the labels that it prefers.

    fewer taints     100 - 100 * taints with effect PreferNoSchedule that the pod does not tolerate / most on any node
    preferred nodes  100 * weights of the preferred terms that select the node / most on any node

Weights and scales are kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial

import numpy as np

from subak.model import manifest
from subak.model.manifest import Expression
from subak.model.node import Node
from subak.model.request import Needs, Request
from subak.policy import Preference
from subak.policy.node import holds, tolerated
from subak.snapshot.pool import Bools, Column, Pool

MOST = 100
"""The points of the best node."""

AVOIDED = "PreferNoSchedule"

Preferred = tuple[tuple[int, tuple[tuple[Expression, ...], tuple[Expression, ...]]], ...]
"""Weights, and terms of a node affinity."""


class FewerTaints(Preference):
    """Nodes without taints that say `PreferNoSchedule`."""

    name = "fewer taints"
    weight = 3

    def __init__(self) -> None:
        self._tainted: set[str] = set()

    def concerns(self, request: Request) -> bool:
        return bool(self._tainted)

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        key, count = ("unwelcome", request.needs.tolerations), partial(_unwelcome, needs=request.needs)
        share = _shares({pool: _figures(pool, key, count) for pool in among}, among)
        return {pool: MOST - points for pool, points in share.items()}

    def node_seen(self, node: Node) -> None:
        if any(taint.effect == AVOIDED for taint in node.taints):
            self._tainted.add(node.name)
        else:
            self._tainted.discard(node.name)

    def node_gone(self, name: str) -> None:
        self._tainted.discard(name)


class PreferredNodes(Preference):
    """The soft part of a node affinity."""

    name = "preferred nodes"
    weight = 2

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
        written = (affinity and affinity.preferred_during_scheduling_ignored_during_execution) or ()
        terms = [(each.weight, each.preference.match_expressions, each.preference.match_fields) for each in written]
        return tuple([(weight, (tuple(labels or ()), tuple(fields or ()))) for weight, labels, fields in terms]) or None

    def points(self, request: Request, among: Mapping[Pool, Bools]) -> Mapping[Pool, Column]:
        terms = request.read(self.name)
        assert isinstance(terms, tuple), "it concerns only pods that state preferences"
        return _shares(
            {pool: _figures(pool, (self.name, terms), partial(_liked, terms=terms)) for pool in among}, among
        )


def _unwelcome(node: Node, needs: Needs) -> int:
    return sum(taint.effect == AVOIDED and not tolerated(taint, needs) for taint in node.taints)


def _liked(node: Node, terms: Preferred) -> int:
    return sum(weight for weight, term in terms if holds(term, node))


def _figures(pool: Pool, key: Hashable, figure: Callable[[Node], int]) -> Column:
    """A figure of each node that depends on its description alone; the pool remembers it."""
    verdicts = pool.verdicts(key, figure)
    known = np.array([each if isinstance(each, int) else 0 for each in verdicts.texts], np.int64)
    return known[verdicts.codes]


def _shares(figures: Mapping[Pool, Column], among: Mapping[Pool, Bools]) -> dict[Pool, Column]:
    """What each figure is of the highest among these nodes, from 0 to MOST."""
    highest = max([int(figures[pool][there].max()) for pool, there in among.items() if there.any()], default=0)
    return {pool: each * MOST // highest if highest else np.zeros_like(each) for pool, each in figures.items()}
