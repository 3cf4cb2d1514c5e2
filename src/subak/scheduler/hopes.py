"""What waiting members of gangs ask for, and when it is worth to try again.

A session that decided nothing would decide nothing again, until something happens that may help somebody who waits: on
a node where something was freed their request may fit (`policy.demand`), or what kept them off has changed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable

import numpy as np

from subak.batch.refusals import Refusals
from subak.model.request import Request
from subak.policy import registry
from subak.policy.demand import Demand
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import Bools


class Hopes:
    """Requests of those who wait, by the keys of their pods.

    `refused` is what fits nowhere, as far as is known.  A request leaves it as soon as it may fit.
    """

    def __init__(self, snapshot: Snapshot, leaving: Callable[[str], Collection[str]]) -> None:
        """`leaving` gives the pods that leave a node anyway."""
        self._leaving = leaving
        self.refused = Refusals()
        self._snapshot = snapshot
        self._request_of: dict[str, Request] = {}
        self._count: dict[Request, int] = {}
        self._number: dict[Request, int] = {}
        self._asks: dict[int, Request] = {}
        self._demand = Demand()
        self._freed: dict[str, None] = {}
        self._cures: dict[Request, frozenset[Hashable]] = {}

    def __len__(self) -> int:
        return len(self._request_of)

    @property
    def in_doubt(self) -> bool:
        """Whether something was freed that nobody has looked at yet."""
        return bool(self._freed)

    def wait(self, key: str, request: Request) -> None:
        """The pod waits for this."""
        before = self._request_of.get(key)
        if before is request or before == request:
            return
        self.leave(key)
        self._request_of[key] = request
        self._count[request] = self._count.get(request, 0) + 1
        if self._count[request] == 1:
            at = self._number[request] = self._demand.add(request)
            self._asks[at] = request

    def leave(self, key: str) -> None:
        """The pod waits no more."""
        request = self._request_of.pop(key, None)
        if request is None:
            return
        self._count[request] -= 1
        if not self._count[request]:
            at = self._number.pop(request)
            self._demand.remove(at)
            del self._count[request], self._asks[at]
            self._cures.pop(request, None)

    def freed(self, nodes: Iterable[str]) -> None:
        """Something was given back or has changed on these nodes, or somebody begins to leave them."""
        self._freed.update(dict.fromkeys(nodes))

    def look(self) -> bool:
        """Whether anybody may fit where something was freed, now or as soon as those have left who leave."""
        hope = False
        for node in self._freed if self._request_of else ():
            for at in np.flatnonzero(self._may_fit(node)).tolist():
                self.refused.discard(self._asks[at])
                hope = True
        self._freed.clear()
        return hope

    def _may_fit(self, node: str) -> Bools:
        leaving = self._leaving(node)
        if not leaving:
            return self._demand.may_fit(self._snapshot, node)
        with self._snapshot.transaction():
            for key in leaving:
                self._snapshot.forget(key)
            return self._demand.may_fit(self._snapshot, node)

    def changed(self, changes: Collection[Hashable]) -> bool:
        """This has happened somewhere: whether it may help anybody."""
        helped = [request for request, cures in self._cures.items() if not cures.isdisjoint(changes)]
        self.refused.difference_update(helped)
        return bool(helped)

    def note_cures(self) -> None:
        """After a session: note what may help those who were refused, beside a node where something is freed."""
        cures = {request: registry.cures(self._snapshot, request) for request in self._count}
        self._cures = {request: each for request, each in cures.items() if each}
