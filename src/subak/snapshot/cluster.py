"""The whole cluster: pools, and the ledger of which pod holds what.

`assume` books a placement that has just been decided and refuses to overcommit; `restore` books what a running pod
holds, whatever that is; `forget` gives back exactly what was booked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from subak.model.node import Node
from subak.model.placement import Charge, Placement, charges
from subak.snapshot.card import CardState
from subak.snapshot.pool import Make, Pool, make_of
from subak.snapshot.scores import Scores

Resources = tuple[tuple[str, int], ...]


class Overcommitted(ValueError):
    """A placement that would take more of a card than it has."""


@dataclass(frozen=True, slots=True)
class Booking:
    """What one pod holds."""

    placement: Placement
    resources: Resources
    charges: dict[str, Charge]


class Snapshot:
    """All nodes and all bookings."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.scores = Scores()
        self._pools: dict[Make, Pool] = {}
        self._homes: dict[str, Pool] = {}
        self._bookings: dict[str, Booking] = {}
        self._on_node: dict[str, set[str]] = {}
        self.put(nodes)

    @property
    def pools(self) -> list[Pool]:
        """All pools that hold nodes."""
        return list(self._pools.values())

    @property
    def bookings(self) -> dict[str, Booking]:
        """What each pod holds, by the pod's key."""
        return self._bookings

    def __len__(self) -> int:
        return len(self._homes)

    def __iter__(self) -> Iterator[Node]:
        """All nodes by name."""
        return iter(sorted((node for pool in self.pools for node in pool.nodes), key=lambda node: node.name))

    def node(self, name: str) -> Node | None:
        """The node with this name."""
        home = self._homes.get(name)
        return None if home is None else home.nodes[self._at(home, name)]

    def cards(self, name: str) -> list[CardState]:
        """The cards of a node as they are now."""
        home = self._homes[name]
        return home.cards(self._at(home, name))

    def put(self, nodes: Iterable[Node]) -> None:
        """Add nodes, or replace them by what they are now; bookings stay."""
        fresh: dict[Make, list[Node]] = {}
        for node in {node.name: node for node in nodes}.values():
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
                self.scores.forget()
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

    def _take_out(self, home: Pool, name: str) -> None:
        home.remove(self._at(home, name))
        if not len(home):
            del self._pools[home.make]
            self.scores.forget()

    def _same_cards(self, home: Pool, node: Node) -> bool:
        known = home.nodes[self._at(home, node.name)]
        return all(old.id == new.id for old, new in zip(known.devices, node.devices, strict=True))

    @staticmethod
    def _at(home: Pool, name: str) -> int:
        at = home.position(name)
        if at is None:
            raise KeyError(name)
        return at

    def assume(self, key: str, placement: Placement, resources: Resources = ()) -> None:
        """Book a placement.  Raises Overcommitted, and books nothing, if a card has not that much left."""
        if placement.node not in self._homes:
            raise KeyError(placement.node)
        booking = Booking(placement, resources, charges(placement.grants))
        self._check(key, booking)
        self._enter(key, booking)

    def restore(self, key: str, placement: Placement, resources: Resources = ()) -> None:
        """Book what a pod already holds; truth needs no room."""
        self._enter(key, Booking(placement, resources, charges(placement.grants)))

    def forget(self, key: str) -> Booking | None:
        """Give back what a pod holds; None if it held nothing."""
        booking = self._bookings.pop(key, None)
        if booking is not None:
            self._on_node[booking.placement.node].discard(key)
            if booking.placement.node in self._homes:
                self._book(key, booking, -1)
        return booking

    def _enter(self, key: str, booking: Booking) -> None:
        self.forget(key)  # the same pod, told twice, is one pod
        self._bookings[key] = booking
        self._on_node.setdefault(booking.placement.node, set()).add(key)
        if booking.placement.node in self._homes:
            self._book(key, booking, 1)

    def _book(self, key: str, booking: Booking, sign: int) -> None:
        home = self._homes[booking.placement.node]
        at = self._at(home, booking.placement.node)
        if booking.charges:
            for row, device in enumerate(home.nodes[at].devices):
                charge = booking.charges.get(device.id)
                if charge is not None:
                    home.charge(at, row, key, charge, sign)
        home.charge_node(at, booking.resources, sign)

    def _check(self, key: str, booking: Booking) -> None:
        if key in self._bookings:
            raise Overcommitted(f"pod {key} already holds cards on node {self._bookings[key].placement.node}")
        states = {card.device.id: card for card in self.cards(booking.placement.node)}
        for id, charge in booking.charges.items():
            card = states.get(id)
            if card is None:
                raise Overcommitted(f"node {booking.placement.node} has no card {id}")
            for what, asked, free in (
                ("slots", charge.slots, card.device.slots - card.used),
                ("bytes", charge.memory_bytes, card.memory_free),
                ("cores", charge.cores, card.cores_free),
            ):
                if asked > free:
                    where = f"card {id} of node {booking.placement.node}"
                    raise Overcommitted(f"{where} has {free:,} {what} left, pod {key} takes {asked:,}")
