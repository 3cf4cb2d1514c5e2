"""Events from outside a cluster: pods come and go in balance, nodes and devices change and change back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec

from bench import load
from bench.driver import DEPARTURE, PLACED, REFUSED, WITHDRAWAL, Driver
from bench.world import World
from subak.model import manifest
from subak.scheduler.messages import DeviceSeen, Event, NodeGone, NodeSeen

ARRIVAL, NODE, DEVICE, COMES, BEAT = "arrival", "node change", "device change", "node gone or back", "heartbeat"

MIX = {ARRIVAL: 44, DEPARTURE: 40, WITHDRAWAL: 4, NODE: 4, DEVICE: 2, COMES: 2, BEAT: 4}
"""How many of each kind in a hundred."""

OUTSIDE = (PLACED, REFUSED, DEPARTURE, WITHDRAWAL, NODE, DEVICE, COMES, BEAT)
"""The kinds under which they are counted."""


class Happenings:
    """A random sequence of events, made from a seed."""

    def __init__(self, driver: Driver, world: World, seed: int) -> None:
        self._driver = driver
        self._world = world
        self._arrivals = world.arrivals()
        self._chance = random.Random(seed)
        self._undo: dict[str, Event] = {}
        self._balance = 0
        self._acts: dict[str, Callable[[], object]] = {
            ARRIVAL: lambda: driver.arrive(next(self._arrivals)),
            DEPARTURE: self._depart,
            WITHDRAWAL: self._withdraw,
            NODE: lambda: self._there_and_back(NODE, self._change_node),
            DEVICE: lambda: self._there_and_back(DEVICE, self._change_device),
            COMES: lambda: self._there_and_back(COMES, self._take_node),
            BEAT: self._beat,
        }

    def __iter__(self) -> Iterator[str]:
        """Make one event after the other: each kind twice at first, since a slow core sees few events."""
        for kind in (*self._acts, *self._acts):
            self._acts[kind]()
            yield kind
        while True:
            kind = self._balanced(self._chance.choices(list(MIX), list(MIX.values()))[0])
            self._acts[kind]()
            yield kind

    def undo(self) -> None:
        """Change back what has not changed back yet."""
        for kind in list(self._undo):
            self._driver.deliver(kind, self._undo.pop(kind))

    def _balanced(self, kind: str) -> str:
        """Keep the balance: an arrival or departure that would outnumber the other kind becomes that kind."""
        if kind in (ARRIVAL, DEPARTURE, WITHDRAWAL):
            if self._balance > 0 and kind == ARRIVAL:
                kind = DEPARTURE
            elif self._balance <= 0:
                kind = ARRIVAL
            self._balance += 1 if kind == ARRIVAL else -1
        return kind

    def _depart(self) -> None:
        self._driver.depart(self._chance.randrange(len(self._driver.running)))

    def _withdraw(self) -> None:
        waiting = list(self._driver.reported)
        if waiting:
            self._driver.withdraw(self._chance.choice(waiting))

    def _there_and_back(self, kind: str, change: Callable[[], tuple[Event, Event]]) -> None:
        """Change something, or change it back the next time."""
        event = self._undo.pop(kind, None)
        if event is None:
            event, self._undo[kind] = change()
        self._driver.deliver(kind, event)

    def _change_node(self) -> tuple[Event, Event]:
        """Cordon a node, label it, or take CPUs from it."""
        node = self._chance.choice(self._world.nodes)
        match self._chance.randrange(3):
            case 0:
                changed = msgspec.structs.replace(node, spec=manifest.NodeSpec(unschedulable=True))
            case 1:
                metadata = msgspec.structs.replace(node.metadata, labels={"zone": "b"})
                changed = msgspec.structs.replace(node, metadata=metadata)
            case _:
                capacity = {**node.capacity, "cpu": "240"}
                changed = msgspec.structs.replace(node, status=manifest.NodeStatus(capacity=capacity))
        return NodeSeen(changed), NodeSeen(node)

    def _change_device(self) -> tuple[Event, Event]:
        """Make a card unhealthy."""
        number, healthy = self._chance.choice(list(self._world.devices.items()))
        return DeviceSeen(load.device(number, sick=self._chance.randrange(load.CARDS))), DeviceSeen(healthy)

    def _take_node(self) -> tuple[Event, Event]:
        """Remove a node; its pods stay as they are."""
        node = self._chance.choice(self._world.nodes)
        return NodeGone(node.name), NodeSeen(node)

    def _beat(self) -> None:
        """Send a node's heartbeat."""
        node = self._chance.choice(self._world.nodes)
        ready = [manifest.Condition(type="Ready", status="True")]
        status = manifest.NodeStatus(capacity=node.capacity, conditions=ready)
        self._driver.deliver(BEAT, NodeSeen(msgspec.structs.replace(node, status=status)))
