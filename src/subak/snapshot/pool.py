"""Nodes of one make, their cards in columns.

A pool holds nodes whose cards are alike row by row (vendor, model, mode, kind), so that everything a request says about
models is decided once per row, not once per card.  What differs between nodes (sizes, health, use) stands in `(card,
node)` arrays, nodes in the order of their names: the first of several equal scores is the first by name.

The columns are the ledger; a `CardState` is a copy of one entry.  Two logs tell readers what changed since they last
looked: `log` names nodes whose use changed, `changes` nodes whose own description did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from subak.model.device import GPU, Device
from subak.model.node import Node
from subak.model.placement import Charge
from subak.snapshot.card import CardState

Column = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Make = tuple[tuple[str, str, str, str], ...]

PLAIN = ("cpu", "memory", "pods")
"""Node resources that have a column; others are looked up per node."""

UNLIMITED = 1 << 62
LONGEST_LOG = 1 << 20
"""Then the logs start anew and readers score everything once more."""

SCALE = 10**6
"""Use of a node is the sum of three fractions, each in millionths."""


def make_of(node: Node) -> Make:
    """What nodes of one pool have in common."""
    return tuple((each.family, each.model, each.mode, each.kind) for each in node.devices)


def usage(parts: Iterable[tuple[int, int]]) -> int:
    """How full something is: the sum of used/total in millionths, 0 if any total is 0."""
    total = 0
    for used, whole in parts:
        if whole <= 0:
            return 0
        total += used * SCALE // whole
    return total


class Pool:
    """The nodes of one make."""

    def __init__(self, make: Make) -> None:
        self.make = make
        self.gpu_rows = [row for row, (*_, kind) in enumerate(make) if kind == GPU]
        self.nodes: list[Node] = []
        self.names: list[str] = []
        self.tenants: list[list[dict[str, Charge]]] = []
        self.resources: list[dict[str, int]] = []
        rows = len(make)
        self.alive: Flags = np.zeros((rows, 0), np.bool_)
        self.cores: Column = np.zeros((rows, 0), np.int64)
        self.memory: Column = np.zeros((rows, 0), np.int64)
        self.used: Column = np.zeros((rows, 0), np.int64)
        self.slots_free: Column = np.zeros((rows, 0), np.int64)
        self.memory_free: Column = np.zeros((rows, 0), np.int64)
        self.cores_free: Column = np.zeros((rows, 0), np.int64)
        self.usage: Column = np.zeros(0, np.int64)
        self.plain: dict[str, Column] = {name: np.zeros(0, np.int64) for name in PLAIN}
        self.log: list[int] = []
        self.changes: list[int] = []
        self.generation = 0
        self._flags: dict[object, tuple[Callable[[Node], bool], Flags]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def position(self, name: str) -> int | None:
        """Where the node stands, None if it is not here."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def insert(self, nodes: Sequence[Node]) -> None:
        """Add nodes that are not here yet, unused."""
        fresh = sorted(nodes, key=lambda node: node.name)
        at = [bisect_left(self.names, node.name) for node in fresh]
        rows = range(len(self.make))

        def grid(value: Callable[[Device], int]) -> Column:
            cells = [[value(node.devices[row]) for node in fresh] for row in rows]
            return np.array(cells, np.int64).reshape(len(self.make), len(fresh))

        memory, cores, slots = grid(lambda d: d.memory_bytes), grid(lambda d: d.cores), grid(lambda d: d.slots)
        alive = grid(lambda d: d.healthy and not d.cordoned).astype(np.bool_)
        self.alive = np.insert(self.alive, at, alive, axis=1)
        self.memory = np.insert(self.memory, at, memory, axis=1)
        self.memory_free = np.insert(self.memory_free, at, memory, axis=1)
        self.cores = np.insert(self.cores, at, cores, axis=1)
        self.cores_free = np.insert(self.cores_free, at, cores, axis=1)
        self.slots_free = np.insert(self.slots_free, at, slots, axis=1)
        self.used = np.insert(self.used, at, np.zeros_like(memory), axis=1)
        self.usage = np.insert(self.usage, at, np.zeros(len(fresh), np.int64))
        for name, column in self.plain.items():
            room = [node.allocatable.get(name, UNLIMITED) for node in fresh]
            self.plain[name] = np.insert(column, at, np.array(room, np.int64))
        merged = sorted(
            [
                *zip(self.names, self.nodes, self.tenants, self.resources, strict=True),
                *((node.name, node, [dict[str, Charge]() for _ in rows], dict[str, int]()) for node in fresh),
            ],
            key=lambda entry: entry[0],
        )
        self._restart(merged)

    def remove(self, at: int) -> None:
        """Take a node out."""
        for name in ("alive", "memory", "memory_free", "cores", "cores_free", "slots_free", "used"):
            setattr(self, name, np.delete(getattr(self, name), at, axis=1))
        self.usage = np.delete(self.usage, at)
        self.plain = {name: np.delete(column, at) for name, column in self.plain.items()}
        kept = list(zip(self.names, self.nodes, self.tenants, self.resources, strict=True))
        del kept[at]
        self._restart(kept)

    def _restart(self, entries: Sequence[tuple[str, Node, list[dict[str, Charge]], dict[str, int]]]) -> None:
        """Positions have shifted: what readers remember about this pool is void."""
        self.names = [entry[0] for entry in entries]
        self.nodes = [entry[1] for entry in entries]
        self.tenants = [entry[2] for entry in entries]
        self.resources = [entry[3] for entry in entries]
        self.log, self.changes = [], []
        self.generation += 1
        self._flags = {}

    def replace(self, at: int, node: Node) -> None:
        """A node of the same make whose description changed; what is held there stays held."""
        old = self.nodes[at]
        for row, (before, after) in enumerate(zip(old.devices, node.devices, strict=True)):
            self.alive[row, at] = after.healthy and not after.cordoned
            self.memory[row, at] = after.memory_bytes
            self.memory_free[row, at] += after.memory_bytes - before.memory_bytes
            self.cores[row, at] = after.cores
            self.cores_free[row, at] += after.cores - before.cores
            self.slots_free[row, at] += after.slots - before.slots
        self.nodes[at] = node
        for name, column in self.plain.items():
            column[at] = node.allocatable.get(name, UNLIMITED) - self.resources[at].get(name, 0)
        for holds, flags in self._flags.values():
            flags[at] = holds(node)
        self._touch(at)
        self.changes.append(at)

    def charge(self, at: int, row: int, key: str, charge: Charge, sign: int) -> None:
        """Book (or give back) what a pod takes from one card."""
        self.used[row, at] += sign * charge.slots
        self.slots_free[row, at] -= sign * charge.slots
        self.memory_free[row, at] -= sign * charge.memory_bytes
        self.cores_free[row, at] -= sign * charge.cores
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
            if name in self.plain:
                self.plain[name][at] -= sign * amount
        self._touch(at)

    def _touch(self, at: int) -> None:
        self.usage[at] = usage(self._parts(at))
        self.log.append(at)
        if len(self.log) > LONGEST_LOG:
            self.log, self.changes = [], []
            self.generation += 1

    def _parts(self, at: int) -> list[tuple[int, int]]:
        """Used and total slots, cores and memory of the node's GPUs."""
        used = cores_free = memory_free = slots_free = cores = memory = 0
        for row in self.gpu_rows:
            used += self.used.item(row, at)
            slots_free += self.slots_free.item(row, at)
            cores_free += self.cores_free.item(row, at)
            memory_free += self.memory_free.item(row, at)
            cores += self.cores.item(row, at)
            memory += self.memory.item(row, at)
        return [(used, used + slots_free), (cores - cores_free, cores), (memory - memory_free, memory)]

    def cards(self, at: int) -> list[CardState]:
        """The node's cards as they are now."""
        return [
            CardState(device, used, device.memory_bytes - memory_free, device.cores - cores_free, tenants)
            for device, used, memory_free, cores_free, tenants in zip(
                self.nodes[at].devices,
                self.used[:, at].tolist(),
                self.memory_free[:, at].tolist(),
                self.cores_free[:, at].tolist(),
                self.tenants[at],
                strict=True,
            )
        ]

    def free(self, at: int, name: str) -> int:
        """How much of a plain resource the node still has."""
        allocatable: Mapping[str, int] = self.nodes[at].allocatable
        if name not in allocatable:
            return UNLIMITED if name in PLAIN else 0
        return allocatable[name] - self.resources[at].get(name, 0)

    def flags(self, key: object, holds: Callable[[Node], bool]) -> Flags:
        """For each node whether `holds`; remembered under `key` and kept up to date."""
        known = self._flags.get(key)
        if known is None:
            known = (holds, np.fromiter((holds(node) for node in self.nodes), np.bool_, len(self.nodes)))
            self._flags[key] = known
        return known[1]
