"""The whole cluster: pools, and the ledger of which pod holds what.

`assume` books a placement that has just been decided and refuses to overcommit; `restore` books what a running pod
holds, whatever that is; `forget` gives back exactly what was booked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from subak.model import manifest
from subak.model.card import CardState
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Charge, Placement, charges
from subak.snapshot.pool import Make, Pool, make_of
from subak.snapshot.scores import Scores
from subak.snapshot.watcher import W, Watcher

Resources = tuple[tuple[str, int], ...]


class Overcommitted(ValueError):
    """A placement that would take more of a card than it has."""


class Booking(msgspec.Struct, frozen=True, gc=False):
    """What one pod holds; `pod` is what watchers see of it, nothing if it is None."""

    placement: Placement
    resources: Resources
    charges: dict[str, Charge]
    pod: manifest.Pod | None = None


class Snapshot:
    """All nodes, in `pools`, and all bookings.  `version` grows with every change."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.scores = Scores()
        self.version = 0
        self._pools: dict[Make, Pool] = {}
        self.pools: list[Pool] = []
        self._homes: dict[str, Pool] = {}
        self._bookings: dict[str, Booking] = {}
        self._on_node: dict[str, set[str]] = {}
        self._watchers: dict[type[Watcher], Watcher] = {}
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

    def cards(self, name: str) -> list[CardState]:
        """The cards of a node as they are now."""
        home = self._homes[name]
        return home.cards(self._at(home, name))

    def watched(self, kind: type[W]) -> W:
        """The watcher of this kind, which has seen all that is here."""
        watcher = self._watchers.get(kind)
        if watcher is None:
            watcher = self._watchers[kind] = kind()
            for node in self:
                watcher.node_seen(node)
            for booking in self._bookings.values():
                _tell(watcher, booking, 1)
        assert isinstance(watcher, kind), "kept under its own kind"
        return watcher

    def put(self, nodes: Iterable[Node]) -> None:
        """Add nodes, or replace them by what they are now; bookings stay."""
        self.version += 1
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
                self._pools[make] = Pool(make)
                self.pools.append(self._pools[make])
            pool = self._pools[make]
            pool.insert(members)
            for node in members:
                self._homes[node.name] = pool
                for key in self._on_node.get(node.name, ()):
                    self._book(key, self._bookings[key], 1)

    def remove(self, name: str) -> None:
        """Forget a node.  What its pods hold stays booked and counts again should the node come back."""
        home = self._homes.pop(name, None)
        if home is not None:
            self._take_out(home, name)
            for watcher in self._watchers.values():
                watcher.node_gone(name)

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

    def assume(
        self, key: str, placement: Placement, resources: Resources = (), pod: manifest.Pod | None = None
    ) -> Booking:
        """Book a placement.  Raises Overcommitted, and books nothing, if a card has not that much left."""
        if placement.node not in self._homes:
            raise KeyError(placement.node)
        booking = Booking(placement, resources, charges(placement.grants), pod)
        self._check(key, booking)
        return self._enter(key, booking)

    def restore(
        self, key: str, placement: Placement, resources: Resources = (), pod: manifest.Pod | None = None
    ) -> Booking:
        """Book what a running pod holds, even if a card is then overcommitted."""
        return self._enter(key, Booking(placement, resources, charges(placement.grants), pod))

    def relabel(self, key: str, pod: manifest.Pod) -> None:
        """The pod has other labels now; it holds what it held."""
        self.version += 1
        old = self._bookings[key]
        new = self._bookings[key] = msgspec.structs.replace(old, pod=pod)
        for watcher in self._watchers.values():
            _tell(watcher, old, -1)
            _tell(watcher, new, 1)

    def forget(self, key: str) -> Booking | None:
        """Give back what a pod holds; None if it held nothing."""
        booking = self._bookings.pop(key, None)
        if booking is not None:
            self._on_node[booking.placement.node].discard(key)
            for watcher in self._watchers.values():
                _tell(watcher, booking, -1)
            if booking.placement.node in self._homes:
                self._book(key, booking, -1)
        return booking

    def _enter(self, key: str, booking: Booking) -> Booking:
        self.forget(key)  # the same pod, told twice, is one pod
        self._bookings[key] = booking
        self._on_node.setdefault(booking.placement.node, set()).add(key)
        for watcher in self._watchers.values():
            _tell(watcher, booking, 1)
        if booking.placement.node in self._homes:
            self._book(key, booking, 1)
        return booking

    def _rows(self, home: Pool, at: int, booking: Booking) -> list[tuple[int, Charge]]:
        """The charges by the row of their card; cards that the node does not have are left out."""
        taken = booking.charges
        return [(row, taken[each.id]) for row, each in enumerate(home.nodes[at].devices) if each.id in taken]

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


def _tell(watcher: Watcher, booking: Booking, sign: int) -> None:
    """Let a watcher see that a pod came, or left."""
    if booking.pod is not None:
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
