"""Room for a pod that fits nowhere: the node where the cheapest pods would have to leave, and who they are.

    limits of priority, the lowest first ── columns: where may room be made? ── victims on each node ── the best plan

Pods that leave already, and places that are kept for less important pods, cost nothing.  Nothing is changed: a plan is
found within transactions that are rolled back.  So it can also be sought for several pods, one after the other, within
an outer transaction.

A limit is a priority that victims may have at most.  The first one at which a node makes room without a violated budget
ends the search, because all others would cost more.  AT_ONCE nodes are compared, in the order of their names, and the
next ones only if none of them helps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np

from subak.model import manifest
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy import registry
from subak.policy.budgets import Budgets
from subak.policy.columns import possible
from subak.policy.decider import Decider
from subak.policy.guesses import Guesses
from subak.policy.levels import Levels, Relief
from subak.policy.on_node import on_node
from subak.policy.shortage import Shortage
from subak.policy.victims import Occupant, Price, Search, price, started
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import PLAIN

AT_ONCE = 100
"""So many nodes are compared, as kube-scheduler does in clusters of up to 1,000 nodes; more if none of them helps."""

MOST_LOOKS = 400
"""So many nodes are asked at one limit."""

MOST_UNSETTLED = 50
"""So many nodes that somebody leaves are asked before victims are sought."""


class Pods(Protocol):
    """What a search must know of pods besides their bookings."""

    def pod(self, key: str) -> manifest.Pod:
        """A booked pod as it is now."""

    def leaving(self, node: str) -> Collection[str]:
        """The pods on this node that leave anyway."""

    def nominated(self, node: str) -> Collection[str]:
        """The pods that are booked on this node and wait for others to leave."""

    def unsettled(self) -> Iterable[str]:
        """The nodes that have any of these."""


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Who wants a place: pods of which these are the same share one search."""

    namespace: str
    request: Request
    priority: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A place, and who must leave for it, the most important first."""

    placement: Placement
    victims: tuple[Occupant, ...] = ()

    @property
    def price(self) -> tuple[Price, str]:
        """The lowest is the best; of equal ones the first by name."""
        return price(self.victims), self.placement.node


class Preemption:
    """Finds plans on a decider's snapshot.  `budgets` are what victims may be protected by."""

    def __init__(self, decider: Decider, pods: Pods) -> None:
        self.budgets = Budgets()
        self._decider = decider
        self._snapshot = decider.snapshot
        self._pods = pods
        self._levels = decider.snapshot.watched(Levels)
        self._relief = Relief(decider.snapshot)
        self._guesses = Guesses(decider.snapshot)

    def plan(self, preemptor: Preemptor, among: Collection[str] | None = None) -> Plan | None:
        """The cheapest way to a place; None if there is none, or nobody less important stands in the way.

        `among` names the only nodes worth asking, if known.
        """
        lowest = self._levels.lowest
        if lowest is None or lowest >= preemptor.priority:
            return None
        best = self._without_victims(preemptor, among)
        if best is not None:
            return best
        limits = self._levels.limits(preemptor.priority)
        if next(self._hopeful(preemptor.request, limits[-1], among), None) is None:
            return None
        for limit in limits:
            names = self._hopeful(preemptor.request, limit, among)
            while chunk := list(islice(names, AT_ONCE)):
                found = self._cheapest(chunk, preemptor, limit)
                if found is not None:
                    best = found if best is None else min(best, found, key=lambda plan: plan.price)
                    break
            if best is not None and not best.price[0][0]:
                return best
        return best

    def on(self, name: str, preemptor: Preemptor, limit: int) -> Plan | None:
        """The cheapest way to a place on this node, with victims of at most this priority."""
        with self._snapshot.transaction():
            search, occupants = self._search(name, preemptor, limit)
            placement = search.fits()
            if placement is not None:
                return Plan(placement)
            found = search.run(occupants)
        return None if found is None else Plan(found[1], tuple(found[0]))

    def _cheapest(self, names: Iterable[str], preemptor: Preemptor, limit: int) -> Plan | None:
        """The best plan on these nodes.  They are asked in the order of what a plan there costs at least."""
        known = self._guesses.of((preemptor, limit, self.budgets.version))
        bounds: list[tuple[Price, str]] = []
        for name in names:
            if name not in known:
                known[name] = self._bound(name, preemptor, limit)
            if (bound := known[name]) is not None:
                bounds.append((bound, name))
        best: Plan | None = None
        for bound, name in sorted(bounds):
            if best is not None and best.price <= (bound, name):
                break
            plan = self.on(name, preemptor, limit)
            if plan is not None and (best is None or plan.price < best.price):
                best = plan
        return best

    def _bound(self, name: str, preemptor: Preemptor, limit: int) -> Price | None:
        """What a plan on this node costs at least; None if there can be none."""
        with self._snapshot.transaction():
            search, occupants = self._search(name, preemptor, limit)
            guess = search.guess(occupants)
        return None if guess is None else guess.bound

    def _search(self, name: str, preemptor: Preemptor, limit: int) -> tuple[Search, list[Occupant]]:
        """A search on the node as it will be, and who may have to leave it."""
        snapshot, request = self._snapshot, preemptor.request
        self.settle(name, preemptor.priority)
        occupants = [self._occupant(key) for key in snapshot.pods_on(name) if self._priority(key) <= limit]
        node = snapshot.node(name)
        assert node is not None, "a plan is sought on nodes that are there"
        kept_off = any(each.refuse(node, request) is not None for each in registry.across(snapshot, request))
        shortage = Shortage.of(snapshot, name, request)
        return Search(snapshot, lambda: self.place(name, preemptor), shortage, everybody=kept_off), occupants

    def settle(self, name: str, priority: int) -> None:
        """Within a transaction: the node without less important pods that leave anyway, or are not there yet."""
        for key in (*self._pods.leaving(name), *self._pods.nominated(name)):
            if key in self._snapshot.bookings and self._priority(key) < priority:
                self._snapshot.forget(key)

    def place(self, name: str, preemptor: Preemptor) -> Placement | None:
        """The pod's place on this node as it is now, if its quota has room too."""
        placement = place_on(self._snapshot, name, preemptor.request)
        if placement is None or self._decider.quotas.refuse(preemptor.namespace, placement) is not None:
            return None
        return placement

    def _without_victims(self, preemptor: Preemptor, among: Collection[str] | None) -> Plan | None:
        """The first node where nobody else has to leave."""
        names = sorted(name for name in self._pods.unsettled() if among is None or name in among)
        for name in names[:MOST_UNSETTLED]:
            with self._snapshot.transaction():
                self.settle(name, preemptor.priority)
                placement = self.place(name, preemptor)
            if placement is not None:
                return Plan(placement)
        return None

    def _hopeful(self, request: Request, limit: int, among: Collection[str] | None) -> Iterator[str]:
        """Nodes where amounts may suffice once all pods up to this limit have left."""
        if among is not None:
            yield from sorted(name for name in among if self._snapshot.home(name) is not None)
            return
        plain = tuple((name, amount) for name, amount in request.needs.resources if name in PLAIN)
        easier = replace(request, needs=replace(request.needs, resources=plain))
        names: list[str] = []
        for pool in self._snapshot.pools:
            at = np.flatnonzero(possible(self._relief.without(pool, limit), easier))
            first = at[pool.order[at].argsort()][:MOST_LOOKS]
            names += [pool.nodes[each].name for each in first.tolist()]
        yield from sorted(names)[:MOST_LOOKS]

    def _priority(self, key: str) -> int:
        return self._pods.pod(key).priority

    def _occupant(self, key: str) -> Occupant:
        pod = self._pods.pod(key)
        budgets = tuple(self.budgets.protecting(pod))
        return Occupant(key, pod, self._snapshot.bookings[key], budgets, started(pod))


def place_on(snapshot: Snapshot, name: str, request: Request) -> Placement | None:
    """The pod's place on this very node as it is now; None if it does not fit there."""
    home = snapshot.home(name)
    if home is None:
        return None
    pool, at = home
    node = pool.nodes[at]
    if any(each.refuse(node, request) is not None for each in registry.filters(snapshot, request)):
        return None
    if any(pool.free(at, key) < amount for key, amount in request.needs.resources):
        return None
    grants = on_node(node, pool.cards(at), request)
    return None if isinstance(grants, Counter) else Placement(name, grants)


def pinned(request: Request, placement: Placement) -> Request:
    """The request for these very cards."""
    if len(request.claims) != len(placement.grants):
        return request
    claims = []
    for claim, grant in zip(request.claims, placement.grants, strict=True):
        ids = frozenset(share.id for share in grant.shares)
        claims.append(replace(claim, selection=replace(claim.selection, use_ids=ids)))
    return replace(request, claims=tuple(claims))


def waits_for(node: str, keys: Sequence[str]) -> str:
    """What to tell the user of a pod that waits for others to leave its node."""
    if not keys:
        return f"waits on node {node} for room to be freed"
    pods = "1 pod" if len(keys) == 1 else f"{len(keys):,} pods"
    return f"waits on node {node} for {pods} to leave: {', '.join(keys)}"
