"""Nodes of one make, their cards in columns.

A pool holds nodes with equally many cards of the same vendor, row by row.  What differs between nodes (sizes, models,
health, use) stands in arrays whose first axis is the node, in the order of names: so one node's cards lie together in
memory, many nodes are tested at once, and the first of several equal scores is the first by name.

The arrays are the ledger; a `CardState` is a copy of one entry.  Two logs tell readers what changed since they last
looked: `log` names nodes whose use changed, `changes` nodes whose own description did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from subak.model.device import GPU, Device
from subak.model.node import Node
from subak.model.placement import Charge
from subak.snapshot.card import CardState

Column = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Make = tuple[tuple[str, str], ...]

PLAIN = ("cpu", "memory", "pods")
"""Node resources that have a column; others are looked up per node."""

_PLAIN_COLUMN = {name: column for column, name in enumerate(PLAIN)}

UNLIMITED = 1 << 62
LONGEST_LOG = 1 << 20
"""Then the logs start anew and readers score everything once more."""

ALIVE, SLOTS, MEMORY, CORES, IDLE = range(5)
"""Rows of `Pool.state`.  All are of the kind "the more the better": a claim fits where each is at least so much."""

SCALE = 10**6
"""Use of a node is the sum of three fractions, each in millionths."""


def make_of(node: Node) -> Make:
    """What nodes of one pool have in common."""
    return tuple((each.family, each.kind) for each in node.devices)


def usage(parts: Iterable[tuple[int, int]]) -> int:
    """How full something is: the sum of used/total in millionths, 0 if any total is 0."""
    total = 0
    for used, whole in parts:
        if whole <= 0:
            return 0
        total += used * SCALE // whole
    return total


class Pool:
    """The nodes of one make.

    `state[node]` is what a claim looks at, for each card: ALIVE (0 if it takes nobody new), free SLOTS, MEMORY, CORES,
    and IDLE (minus the number of shares, so that 0 is idle).  `memory` and `cores` are the sizes of the cards, `types`
    numbers their model and mode by `kinds`.  `totals` and `taken` are sums over a node's GPUs of slots, cores and
    memory; `usage` follows from them.  `plain` is what is free of `PLAIN`.
    """

    def __init__(self, make: Make) -> None:
        self.make = make
        self.is_gpu = [kind == GPU for _, kind in make]
        self.kinds: list[tuple[str, str]] = []
        self.nodes: list[Node] = []
        self.names: list[str] = []
        self.tenants: list[list[dict[str, Charge]]] = []
        self.resources: list[dict[str, int]] = []
        cards = len(make)
        self.state: Column = np.zeros((0, 5, cards), np.int64)
        self.memory: Column = np.zeros((0, cards), np.int64)
        self.cores: Column = np.zeros((0, cards), np.int64)
        self.types: Column = np.zeros((0, cards), np.int64)
        self.totals: Column = np.zeros((0, 3), np.int64)
        self.taken: Column = np.zeros((0, 3), np.int64)
        self.usage: Column = np.zeros(0, np.int64)
        self.plain: Column = np.zeros((0, len(PLAIN)), np.int64)
        self.log: list[int] = []
        self.changes: list[int] = []
        self.generation = 0
        self._positions: dict[str, int] = {}
        self._flags: dict[object, tuple[Callable[[Node], bool], Flags]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def position(self, name: str) -> int | None:
        """Where the node stands, None if it is not here."""
        return self._positions.get(name)

    def insert(self, nodes: Sequence[Node]) -> None:
        """Add nodes that are not here yet, unused."""
        fresh = sorted(nodes, key=lambda node: node.name)
        at = [bisect_left(self.names, node.name) for node in fresh]
        for name, values in self._columns_of(fresh).items():
            setattr(self, name, np.insert(getattr(self, name), at, values, axis=0))
        entries = [
            *zip(self.names, self.nodes, self.tenants, self.resources, strict=True),
            *((node.name, node, [dict[str, Charge]() for _ in self.make], dict[str, int]()) for node in fresh),
        ]
        self._restart(sorted(entries, key=lambda entry: entry[0]))

    def remove(self, at: int) -> None:
        """Take a node out."""
        for name in self._columns_of(()):
            setattr(self, name, np.delete(getattr(self, name), at, axis=0))
        kept = list(zip(self.names, self.nodes, self.tenants, self.resources, strict=True))
        del kept[at]
        self._restart(kept)

    def _restart(self, entries: Sequence[tuple[str, Node, list[dict[str, Charge]], dict[str, int]]]) -> None:
        """Positions have shifted: what readers remember about this pool is void."""
        self.names = [entry[0] for entry in entries]
        self.nodes = [entry[1] for entry in entries]
        self.tenants = [entry[2] for entry in entries]
        self.resources = [entry[3] for entry in entries]
        self._positions = {name: at for at, name in enumerate(self.names)}
        self._flags = {}
        self._void()

    def _void(self) -> None:
        self.log, self.changes = [], []
        self.generation += 1

    def replace(self, at: int, node: Node) -> None:
        """A node with the same cards whose description changed; what is held there stays held."""
        new, old = self._columns_of((node,)), self._columns_of((self.nodes[at],))
        reshaped = any((new[name] != old[name]).any() for name in ("memory", "cores", "types"))
        for name, values in new.items():
            getattr(self, name)[at] += values[0] - old[name][0]
        self.nodes[at] = node
        self.plain[at] = [self.free(at, name) for name in PLAIN]
        for holds, flags in self._flags.values():
            flags[at] = holds(node)
        self._touch(at)
        self.changes.append(at)
        if reshaped:
            self._void()  # readers may rely on sizes and types

    def charge(self, at: int, row: int, key: str, charge: Charge, sign: int) -> None:
        """Book (or give back) what a pod takes from one card."""
        slots, cores, memory = sign * charge.slots, sign * charge.cores, sign * charge.memory_bytes
        state = self.state[at]
        state[IDLE, row] -= sign * charge.shares
        state[SLOTS, row] -= slots
        state[MEMORY, row] -= memory
        state[CORES, row] -= cores
        if self.is_gpu[row]:
            taken = self.taken[at]
            taken[0] += slots
            taken[1] += cores
            taken[2] += memory
        if sign > 0:
            self.tenants[at][row][key] = charge
        else:
            del self.tenants[at][row][key]

    def charge_node(self, at: int, resources: Iterable[tuple[str, int]], sign: int) -> None:
        """Book (or give back) what a pod takes from the node itself, and tell the readers."""
        held = self.resources[at]
        for name, amount in resources:
            held[name] = held.get(name, 0) + sign * amount
            if not held[name]:
                del held[name]
            column = _PLAIN_COLUMN.get(name)
            if column is not None:
                self.plain[at, column] -= sign * amount
        self._touch(at)

    def _touch(self, at: int) -> None:
        self.usage[at] = usage(zip(self.taken[at].tolist(), self.totals[at].tolist(), strict=True))
        self.log.append(at)
        if len(self.log) > LONGEST_LOG:
            self._void()

    def cards(self, at: int) -> list[CardState]:
        """The node's cards as they are now."""
        _, slots_free, memory_free, cores_free, idle = self.state[at].tolist()
        cards = zip(self.nodes[at].devices, idle, slots_free, memory_free, cores_free, self.tenants[at], strict=True)
        return [CardState(device, -idle, *room) for device, idle, *room in cards]

    def free(self, at: int, name: str) -> int:
        """How much of a plain resource the node still has; what a node does not mention is not limited.

        An extended resource (one with a domain) that a node does not mention is not there.
        """
        allocatable = self.nodes[at].allocatable
        if name not in allocatable:
            return 0 if "/" in name else UNLIMITED
        return allocatable[name] - self.resources[at].get(name, 0)

    def flags(self, key: object, holds: Callable[[Node], bool]) -> Flags:
        """For each node whether `holds`; remembered under `key` and kept up to date."""
        known = self._flags.get(key)
        if known is None:
            known = (holds, np.fromiter((holds(node) for node in self.nodes), np.bool_, len(self.nodes)))
            self._flags[key] = known
        return known[1]

    def _columns_of(self, nodes: Sequence[Node]) -> dict[str, Column]:
        """The arrays of nodes that nobody uses, by name."""
        shape = (len(nodes), len(self.make))

        def grid(value: Callable[[Device], int]) -> Column:
            return np.array([[value(each) for each in node.devices] for node in nodes], np.int64).reshape(shape)

        memory, cores = grid(lambda each: each.memory_bytes), grid(lambda each: each.cores)
        slots, alive = grid(lambda each: each.slots), grid(lambda each: each.healthy and not each.cordoned)
        gpus = np.array(self.is_gpu, np.bool_)
        room = [[node.allocatable.get(name, UNLIMITED) for name in PLAIN] for node in nodes]
        return {
            "state": np.stack([alive, slots, memory, cores, np.zeros(shape, np.int64)], axis=1),
            "memory": memory,
            "cores": cores,
            "types": grid(self._type),
            "totals": np.stack([each[:, gpus].sum(axis=1) for each in (slots, cores, memory)], axis=1),
            "taken": np.zeros((len(nodes), 3), np.int64),
            "usage": np.zeros(len(nodes), np.int64),
            "plain": np.array(room, np.int64).reshape(len(nodes), len(PLAIN)),
        }

    def _type(self, device: Device) -> int:
        kind = (device.model, device.mode)
        if kind not in self.kinds:
            self.kinds.append(kind)
        return self.kinds.index(kind)
