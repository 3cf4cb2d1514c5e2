"""The whole cluster: pools, and the ledger of which pod holds what.

`assume` books a placement that has just been decided and refuses to overcommit; `restore` books what a running pod
holds, whatever that is; `forget` gives back exactly what was booked.  A pod is known by its key, `namespace/name`.
What namespaces use of their quotas is the sum of the bookings, so it can never disagree with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import cast

import msgspec

from subak.model import manifest
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Charge, Placement, charges
from subak.snapshot.pool import Make, Pool, make_of
from subak.snapshot.scores import Scores
from subak.snapshot.transaction import Journal, Transaction
from subak.snapshot.watcher import Change, W, Watcher

_CAME, _LEFT = Change.POD_CAME, Change.POD_LEFT  # to look up a member of an enum takes longer than the rest

Resources = tuple[tuple[str, int], ...]
Count = Callable[[Placement, Mapping[str, Charge]], Resources]
"""What a placement, with these charges, takes of the resources that quotas limit."""


class Overcommitted(ValueError):
    """A placement that would take more of a card than it has."""


class Booking(msgspec.Struct, frozen=True, gc=False):
    """What one pod holds, and what its namespace's quota counts for it; `pod` is what watchers see of it."""

    placement: Placement
    resources: Resources
    charges: dict[str, Charge]
    counted: Resources
    pod: manifest.Pod | None = None


def _nothing(placement: Placement, taken: Mapping[str, Charge]) -> Resources:
    return ()


class Snapshot:
    """All nodes, in `pools`, and all bookings.  `version` grows with every change.

    `used` is what each namespace uses of each resource that `count` counts.  `freed` are the nodes, and `relieved` the
    namespaces, of which something was given back since somebody last emptied them: waiting pods may fit there now.
    `changes` are what else has happened, anywhere.  `namespaces` are the labels of each.
    `epoch` grows when a watcher finds that requests read before may lack something: they are read again.
    """

    def __init__(self, nodes: Iterable[Node] = (), count: Count = _nothing) -> None:
        self.scores = Scores()
        self.version = 0
        self.epoch = 0
        self.used: dict[tuple[str, str], int] = {}
        self.freed: dict[str, None] = {}
        self.relieved: dict[str, None] = {}
        self.changes: dict[Hashable, None] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self._watchers: dict[type[Watcher], Watcher] = {}
        self._hear_pods: list[Watcher] = []
        self._count = count
        self._journal = Journal()
        self._pools: dict[Make, Pool] = {}
        self.pools: list[Pool] = []
        self._homes: dict[str, Pool] = {}
        self._bookings: dict[str, Booking] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self.put(nodes)

    def home(self, name: str) -> tuple[Pool, int] | None:
        """The pool and position of a node."""
        pool = self._homes.get(name)
        return None if pool is None else (pool, self._at(pool, name))

    @property
    def bookings(self) -> dict[str, Booking]:
        """What each pod holds, by the pod's key."""
        return self._bookings

    def __len__(self) -> int:
        return len(self._homes)

    def __iter__(self) -> Iterator[Node]:
        """All nodes by name."""
        return iter(sorted((pool.nodes[at] for pool in self.pools for at in pool), key=lambda node: node.name))

    def node(self, name: str) -> Node | None:
        """The node with this name."""
        home = self._homes.get(name)
        return None if home is None else home.nodes[self._at(home, name)]

    def pods_on(self, name: str) -> list[str]:
        """The keys of all pods that are booked on a node."""
        return list(self._on_node.get(name, ()))

    def cards(self, name: str) -> list[CardState]:
        """The cards of a node as they are now."""
        home = self._homes[name]
        return home.cards(self._at(home, name))

    def watched(self, kind: type[W]) -> W:
        """The watcher of this kind, which has seen all that is here."""
        watcher = self._watchers.get(kind)
        if watcher is None:
            watcher = self._watchers[kind] = kind.start(self)
            if kind.pod_came is not Watcher.pod_came:  # most care for nodes or for requests only
                self._hear_pods.append(watcher)
            for name, labels in self.namespaces.items():
                watcher.namespace_seen(name, labels)
            for node in self:
                watcher.node_seen(node)
            for booking in self._bookings.values():
                _tell([watcher], booking, 1)
        return cast(W, watcher)  # every decision asks for some: no time to check that it is under its own kind

    def put(self, nodes: Iterable[Node]) -> None:
        """Add nodes, or replace them by what they are now; bookings stay.  Not within a transaction."""
        self._check_outside()
        self.version += 1
        self.changes[Change.NODE_CHANGED] = None
        fresh: dict[Make, list[Node]] = {}
        for node in {node.name: node for node in nodes}.values():
            for watcher in self._watchers.values():
                watcher.node_seen(node)
            home, make = self._homes.get(node.name), make_of(node)
            if home is not None and home.make == make and self._same_cards(home, node):
                home.replace(self._at(home, node.name), node)
                continue
            if home is not None:
                self._take_out(home, node.name)
            fresh.setdefault(make, []).append(node)
        for make, members in fresh.items():
            if make not in self._pools:
                self._pools[make] = Pool(make, self._journal)
                self.pools.append(self._pools[make])
            pool = self._pools[make]
            pool.insert(members)
            for node in members:
                self._homes[node.name] = pool
                for key in self._on_node.get(node.name, ()):
                    self._book(key, self._bookings[key], 1)

    def remove(self, name: str) -> None:
        """Forget a node; what its pods hold counts again should it come back.  Not within a transaction."""
        self._check_outside()
        home = self._homes.pop(name, None)
        if home is not None:
            self._take_out(home, name)
            self.changes[Change.NODE_CHANGED] = None
            for watcher in self._watchers.values():
                watcher.node_gone(name)

    def see_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Add a namespace, or note the labels that it has now.  Not within a transaction."""
        self._check_outside()
        if self.namespaces.get(name) != labels:
            self.namespaces[name] = labels
            self._namespace_changed()
            for watcher in self._watchers.values():
                watcher.namespace_seen(name, labels)

    def lose_namespace(self, name: str) -> None:
        """Forget a namespace.  Not within a transaction."""
        self._check_outside()
        if self.namespaces.pop(name, None) is not None:
            self._namespace_changed()
            for watcher in self._watchers.values():
                watcher.namespace_gone(name)

    def _namespace_changed(self) -> None:
        self.version += 1
        self.epoch += 1
        self.changes[Change.NAMESPACE_CHANGED] = None

    def note(self, change: Hashable) -> None:
        """A watcher has seen a change of its own; a rollback takes it back."""
        if self._journal.depth:
            self._journal.keep(self.changes, change)
        self.changes[change] = None

    def _check_outside(self) -> None:
        if self._journal.depth:
            raise RuntimeError("nodes cannot change within a transaction: a rollback undoes bookings only")

    def _take_out(self, home: Pool, name: str) -> None:
        self.version += 1
        home.remove(self._at(home, name))
        if not len(home):
            del self._pools[home.make]
            self.pools.remove(home)
            self.scores.forget(home)

    def _same_cards(self, home: Pool, node: Node) -> bool:
        known = home.nodes[self._at(home, node.name)]
        return all(old.id == new.id for old, new in zip(known.devices, node.devices, strict=True))

    @staticmethod
    def _at(home: Pool, name: str) -> int:
        at = home.position(name)
        if at is None:
            raise KeyError(name)
        return at

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Bookings that can be rolled back: see `snapshot.transaction`."""
        return self._journal.transaction()

    @property
    def tentative(self) -> bool:
        """Whether a transaction is open: then what is seen may never have happened."""
        return self._journal.depth > 0

    def assume(
        self, key: str, placement: Placement, resources: Resources = (), pod: manifest.Pod | None = None
    ) -> Booking:
        """Book a placement.  Raises Overcommitted, and books nothing, if a card has not that much left."""
        if placement.node not in self._homes:
            raise KeyError(placement.node)
        booking = self._booking(placement, resources, None, pod)
        self._check(key, booking)
        self._enter(key, booking, 1)
        return booking

    def restore(
        self,
        key: str,
        placement: Placement,
        resources: Resources = (),
        counted: Placement | None = None,
        pod: manifest.Pod | None = None,
    ) -> Booking:
        """Book what a running pod holds, even if a card is then overcommitted; its quota counts `counted`."""
        self.forget(key)  # a pod that is seen again is still one pod
        booking = self._booking(placement, resources, counted, pod)
        self._enter(key, booking, 1)
        return booking

    def forget(self, key: str) -> Booking | None:
        """Give back what a pod holds; None if it held nothing."""
        booking = self._bookings.get(key)
        if booking is not None:
            self._enter(key, booking, -1)
        return booking

    def put_back(self, key: str, booking: Booking) -> None:
        """Book again exactly what a pod held before it was forgotten."""
        self._enter(key, booking, 1)

    def may_overdraw(self, key: str) -> bool:
        """Whether a card of the pod may carry too much; amounts without a column need a closer look."""
        booking = self._bookings.get(key)
        home = None if booking is None else self.home(booking.placement.node)
        if booking is None or home is None:
            return False
        pool, at = home
        return any(
            pool.overdrawn(at, row) or ((charge.extras or charge.functions) and len(pool.tenants[at][row]) > 1)
            for row, charge in self._rows(pool, at, booking)
        )

    def relabel(self, key: str, pod: manifest.Pod) -> None:
        """The pod has other labels now, and holds what it held.  Not within a transaction."""
        self._check_outside()
        old = self._bookings[key]
        self._bookings[key] = new = msgspec.structs.replace(old, pod=pod)
        self.version += 1
        self.changes[Change.POD_RELABELLED] = None
        _tell(self._hear_pods, old, -1)
        _tell(self._hear_pods, new, 1)

    def _booking(
        self, placement: Placement, resources: Resources, counted: Placement | None, pod: manifest.Pod | None
    ) -> Booking:
        taken = charges(placement.grants)
        if counted is None or counted is placement:
            return Booking(placement, resources, taken, self._count(placement, taken), pod)
        return Booking(placement, resources, taken, self._count(counted, charges(counted.grants)), pod)

    def _enter(self, key: str, booking: Booking, sign: int) -> None:
        """Book, or with sign -1 give back."""
        node, namespace = booking.placement.node, key.partition("/")[0]
        if self._journal.depth:
            self._note(key, booking, node, namespace, sign)
        if sign > 0:
            self._bookings[key] = booking
            self._on_node.setdefault(node, {})[key] = None
            self.changes[_CAME] = None
        else:
            del self._bookings[key], self._on_node[node][key]
            self.freed[node] = self.relieved[namespace] = self.changes[_LEFT] = None
        _tell(self._hear_pods, booking, sign)
        for name, amount in booking.counted:
            self.used[namespace, name] = self.used.get((namespace, name), 0) + sign * amount
            if not self.used[namespace, name]:
                del self.used[namespace, name]
        if node in self._homes:
            self._book(key, booking, sign)

    def _note(self, key: str, booking: Booking, node: str, namespace: str, sign: int) -> None:
        """Note how to undo what `_enter` is about to do."""
        journal, home = self._journal, self.home(node)
        journal.note(partial(setattr, self, "version", self.version))
        journal.note(lambda: _tell(self._hear_pods, booking, -sign))
        journal.keep(self._bookings, key)
        journal.keep(self._on_node.setdefault(node, {}), key)
        journal.keep(self.freed, node)
        journal.keep(self.relieved, namespace)
        journal.keep(self.changes, _CAME if sign > 0 else _LEFT)
        for name, _ in booking.counted:
            journal.keep(self.used, (namespace, name))
        if home is not None:
            journal.note(home[0].as_it_is(home[1]))

    def _rows(self, home: Pool, at: int, booking: Booking) -> list[tuple[int, Charge]]:
        """The charges by the row of their card; cards that the node does not have are left out."""
        node = home.nodes[at]
        return [(row, charge) for id, charge in booking.charges.items() if (row := node.row(id)) is not None]

    def _book(self, key: str, booking: Booking, sign: int) -> None:
        self.version += 1
        home = self._homes[booking.placement.node]
        at = self._at(home, booking.placement.node)
        for row, charge in self._rows(home, at, booking):
            home.charge(at, row, key, charge, sign)
        home.charge_node(at, booking.resources, sign)

    def _check(self, key: str, booking: Booking) -> None:
        """Raise Overcommitted unless the placement's node has all that it takes."""
        name = booking.placement.node
        if key in self._bookings:
            raise Overcommitted(f"pod {key} already holds cards on node {self._bookings[key].placement.node}")
        home = self._homes[name]
        at = self._at(home, name)
        rows = self._rows(home, at, booking)
        if len(rows) != len(booking.charges):
            raise Overcommitted(f"node {name} has not all of the cards {', '.join(booking.charges)}")
        for row, charge in rows:
            if charge.extras or charge.functions:
                _check_named(key, charge, home.nodes[at].devices[row], home.tenants[at][row].values())
            # What a pod takes nothing of may be overcommitted by others: it is compared with 0 then.
            _, slots, memory, cores, _ = home.state[:, row, at].clip(0).tolist()
            if charge.slots > slots or charge.memory_bytes > memory or charge.cores > cores:
                raise Overcommitted(
                    f"card {home.nodes[at].devices[row].id} of node {name} has {slots} slots, {memory:,} bytes and "
                    f"{cores} cores left; pod {key} takes {charge.slots}, {charge.memory_bytes:,} and {charge.cores}"
                )


def _tell(watchers: Iterable[Watcher], booking: Booking, sign: int) -> None:
    """Let watchers see that a pod came, or left."""
    if booking.pod is not None:
        for watcher in watchers:
            (watcher.pod_came if sign > 0 else watcher.pod_left)(booking.pod, booking.placement.node)


def _check_named(key: str, charge: Charge, device: Device, tenants: Collection[Charge]) -> None:
    """Raise Overcommitted unless the card has the vendor's own amounts and the virtual functions that are taken."""
    total = dict(device.extras)
    for name, amount in charge.extras.items():
        left = total.get(name, 0) - sum(each.extras.get(name, 0) for each in tenants)
        if amount > left:
            raise Overcommitted(f"card {device.id} has {left} {name} left; pod {key} takes {amount}")
    taken = {each.bus for tenant in tenants for each in tenant.functions}
    for function in charge.functions:
        if function.bus in taken:
            raise Overcommitted(f"virtual function {function.bus} of card {device.id} is not free for pod {key}")
