"""Nodes of one make, their cards in columns.

A pool holds nodes with equally many cards of the same vendor, row by row.  What differs between nodes (sizes, models,
health, use) stands in arrays whose last axis is the node, so that one card of all nodes lies together in memory and
thousands of nodes are tested at once.  A node keeps its position while it is here.  A position that becomes vacant is
given to the next node, and the arrays grow by doubling: a node comes and goes at a cost that does not depend on how
many there are.  `order` ranks positions by the names of their nodes, for ties.

The arrays are the ledger; a `CardState` is a copy of one entry.  The log tells readers which nodes changed since they
last looked, be it by use or by description.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import numpy as np
import numpy.typing as npt

from subak.model.card import CardState
from subak.model.device import GPU, Device
from subak.model.node import Node
from subak.model.placement import Charge
from subak.snapshot.transaction import Journal, Undo

Column = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
Make = tuple[tuple[str, str], ...]
Judge = Callable[[Node], Hashable | None]
"""A rule about descriptions of nodes: None, or what is against the node."""

PLAIN = ("cpu", "memory", "pods")
"""Node resources that have a column; others are looked up per node."""

_PLAIN_COLUMN = {name: column for column, name in enumerate(PLAIN)}

UNLIMITED = 1 << 62
NOTHING = np.iinfo(np.int64).min
"""Less than anything that can be asked for: what a vacant position has."""

LONGEST_LOG = 1 << 20
"""Then the log starts anew and readers score everything once more."""

ALIVE, SLOTS, MEMORY, CORES, IDLE = range(5)
"""Rows of `Pool.state`.  All are of the kind "the more the better": a claim fits where each is at least so much."""

SCALE = 10**6
"""Use of a node is the sum of three fractions, each in millionths."""

RECENT_VERDICTS = 64
"""Verdicts that are kept although nobody uses them at the moment."""

VACANT = Node("")
_FIRST_ROOM = 8
_GAP = 1 << 32


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


def _between(below: int | None, above: int | None) -> int | None:
    """A number between two others, of which either may be missing; None if there is none."""
    if below is None:
        return 0 if above is None else above - _GAP
    if above is None:
        return below + _GAP
    return (below + above) // 2 if above - below > 1 else None


def _alive(device: Device) -> int:
    return int(not device.cordoned) if device.healthy else -1


class Verdicts:
    """What a rule says to each node by its description alone; kept up to date while somebody keeps the object.

    `codes` are positions in `texts`, of which the first is None: nothing against the node.
    """

    def __init__(self, judge: Judge, room: int) -> None:
        self.judge = judge
        self.codes: npt.NDArray[np.int32] = np.zeros(room, np.int32)
        self.passes: Bools = np.zeros(room, np.bool_)
        self.texts: list[Hashable | None] = [None]
        self._code_of: dict[Hashable | None, int] = {None: 0}

    def look(self, at: int, node: Node) -> None:
        """Judge the node at this position."""
        verdict = self.judge(node)
        code = self._code_of.get(verdict)
        if code is None:
            code = self._code_of[verdict] = len(self.texts)
            self.texts.append(verdict)
        self.codes[at], self.passes[at] = code, code == 0

    @classmethod
    def of(cls, codes: npt.NDArray[np.int32], texts: Sequence[Hashable | None]) -> Verdicts:
        """Verdicts of this moment: for each of a pool's positions (as many as it has room for) one of the texts."""
        verdicts = cls(lambda node: None, 0)
        verdicts.codes, verdicts.passes, verdicts.texts = codes, codes == 0, list(texts)
        return verdicts

    def leave(self, at: int) -> None:
        """The position is vacant now."""
        self.passes[at] = False

    def grow(self) -> None:
        """Twice as many positions."""
        self.codes = np.append(self.codes, np.zeros_like(self.codes))
        self.passes = np.append(self.passes, np.zeros_like(self.passes))


class Figures:
    """A number for each node by its description alone; kept up to date while somebody keeps the object."""

    def __init__(self, figure: Callable[[Node], int], room: int) -> None:
        self.figure = figure
        self.values: Column = np.zeros(room, np.int64)

    def look(self, at: int, node: Node) -> None:
        """The node at this position is new or has changed."""
        self.values[at] = self.figure(node)

    def leave(self, at: int) -> None:
        """The position is vacant now."""
        self.values[at] = 0

    def grow(self) -> None:
        """Twice as many positions."""
        self.values = np.append(self.values, np.zeros_like(self.values))


class Pool:
    """The nodes of one make.

    `state[:, :, node]` is what a claim looks at, for each card: ALIVE (1; 0 if the card is cordoned, -1 if it is not
    healthy), free SLOTS, MEMORY, CORES, and IDLE (minus the number of shares, so that 0 is idle).  `memory` and `cores`
    are the sizes of the cards, `types` numbers their model and mode by `kinds`.  `totals` and `taken` are sums over a
    node's GPUs of slots, cores and memory; `usage` follows from them.  `plain` is what is free of `PLAIN`.  Only the
    first `size` positions of an array mean anything, and of these some are VACANT.
    """

    def __init__(self, make: Make, journal: Journal | None = None) -> None:
        self.make = make
        self.journal = journal or Journal()
        self.is_gpu = [kind == GPU for _, kind in make]
        self.kinds: list[tuple[str, str]] = []
        self._number_of: dict[tuple[str, str], int] = {}
        self.nodes: list[Node] = []
        self.tenants: list[list[dict[str, Charge]]] = []
        self.resources: list[dict[str, int]] = []
        cards = len(make)
        self.state: Column = np.zeros((5, cards, _FIRST_ROOM), np.int64)
        self.memory: Column = np.zeros((cards, _FIRST_ROOM), np.int64)
        self.cores: Column = np.zeros((cards, _FIRST_ROOM), np.int64)
        self.types: Column = np.zeros((cards, _FIRST_ROOM), np.int64)
        self.totals: Column = np.zeros((3, _FIRST_ROOM), np.int64)
        self.taken: Column = np.zeros((3, _FIRST_ROOM), np.int64)
        self.usage: Column = np.zeros(_FIRST_ROOM, np.int64)
        self.plain: Column = np.zeros((len(PLAIN), _FIRST_ROOM), np.int64)
        self.order: Column = np.zeros(_FIRST_ROOM, np.int64)
        self.log: list[int] = []
        self.generation = 0
        self._positions: dict[str, int] = {}
        self._vacant: list[int] = []
        self._names: list[str] = []
        self._verdicts: WeakValueDictionary[Hashable, Verdicts] = WeakValueDictionary()
        self._recent: OrderedDict[Hashable, Verdicts] = OrderedDict()
        self._figures: WeakSet[Figures] = WeakSet()
        self.shared: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()

    def __len__(self) -> int:
        """How many nodes are here."""
        return len(self._positions)

    @property
    def size(self) -> int:
        """How many positions are in use, vacant ones among them."""
        return len(self.nodes)

    @property
    def room(self) -> int:
        """How many positions the arrays have."""
        return len(self.usage)

    def __iter__(self) -> Iterator[int]:
        """The positions of all nodes."""
        return iter(self._positions.values())

    def position(self, name: str) -> int | None:
        """Where the node stands, None if it is not here."""
        return self._positions.get(name)

    def positions(self, names: Set[str]) -> list[int]:
        """Where those of these nodes stand that are here."""
        return [self._positions[name] for name in self._positions.keys() & names]

    def insert(self, nodes: Sequence[Node]) -> None:
        """Add nodes that are not here yet, unused."""
        for node in nodes:
            at = self._place_for(node)
            for name, values in self._entry(node).items():
                getattr(self, name)[..., at] = values
            self._describe(at, node)
        self._rank([node.name for node in nodes])

    def _kept(self) -> Iterator[Verdicts | Figures]:
        """All that follows the descriptions of nodes."""
        yield from self._verdicts.values()
        yield from self._figures

    def _place_for(self, node: Node) -> int:
        tenants: list[dict[str, Charge]] = [{} for _ in self.make]
        if self._vacant:
            at = self._vacant.pop()
            self.nodes[at], self.tenants[at], self.resources[at] = node, tenants, {}
        else:
            at = self.size
            self.nodes.append(node)
            self.tenants.append(tenants)
            self.resources.append({})
            if at == self.room:
                self._grow()
        self._positions[node.name] = at
        return at

    def _grow(self) -> None:
        for name in (*self._entry(VACANT), "order"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate((old, np.zeros_like(old)), axis=-1))
        for kept in self._kept():
            kept.grow()

    def _rank(self, names: Sequence[str]) -> None:
        """Give nodes that have just come a number in `order`, between those of their neighbours by name."""
        if len(names) > 1:
            self._names = sorted(self._positions)
            self._rank_anew()
            return
        for name in names:
            i = bisect_left(self._names, name)
            below = self._order_at(i - 1) if i else None
            above = self._order_at(i) if i < len(self._names) else None
            self._names.insert(i, name)
            number = _between(below, above)
            if number is None:
                self._rank_anew()
            else:
                self.order[self._positions[name]] = number

    def _order_at(self, i: int) -> int:
        return int(self.order[self._positions[self._names[i]]])

    def _rank_anew(self) -> None:
        at = [self._positions[name] for name in self._names]
        self.order[at] = np.arange(len(at), dtype=np.int64) * _GAP

    def remove(self, at: int) -> None:
        """Take a node out."""
        name = self.nodes[at].name
        del self._positions[name]
        del self._names[bisect_left(self._names, name)]
        self.nodes[at], self.tenants[at], self.resources[at] = VACANT, [], {}
        self.state[..., at] = 0
        self.plain[:, at] = NOTHING
        self._vacant.append(at)
        for kept in self._kept():
            kept.leave(at)
        self._note(at)

    def replace(self, at: int, node: Node) -> None:
        """A node with the same cards whose description changed; what is held there stays held."""
        new, old = self._entry(node), self._entry(self.nodes[at])
        for name, values in new.items():
            # A node without cards has empty lists, which numpy would take for floats.
            getattr(self, name)[..., at] += np.asarray(values, np.int64) - np.asarray(old[name], np.int64)
        self.nodes[at] = node
        self._describe(at, node)

    def _describe(self, at: int, node: Node) -> None:
        self.plain[:, at] = [self.free(at, name) for name in PLAIN]
        for kept in self._kept():
            kept.look(at, node)
        self._touch(at)

    def charge(self, at: int, row: int, key: str, charge: Charge, sign: int) -> None:
        """Book (or give back) what a pod takes from one card."""
        slots, cores, memory = sign * charge.slots, sign * charge.cores, sign * charge.memory_bytes
        state, taken = self.state, self.taken
        state[SLOTS, row, at] -= slots
        state[MEMORY, row, at] -= memory
        state[CORES, row, at] -= cores
        state[IDLE, row, at] -= sign * charge.shares
        if self.is_gpu[row]:
            taken[0, at] += slots
            taken[1, at] += cores
            taken[2, at] += memory
        if sign > 0:
            self.tenants[at][row][key] = charge
        else:
            del self.tenants[at][row][key]

    def overdrawn(self, at: int, row: int) -> bool:
        """Whether more is taken of a card than it has: of memory, cores or slots."""
        free = self.state.item  # to read three numbers so is quicker than to compare an array of three
        return free(SLOTS, row, at) < 0 or free(MEMORY, row, at) < 0 or free(CORES, row, at) < 0

    def charge_node(self, at: int, resources: Iterable[tuple[str, int]], sign: int) -> None:
        """Book (or give back) what a pod takes from the node itself, and tell the readers."""
        held = self.resources[at]
        for name, amount in resources:
            held[name] = held.get(name, 0) + sign * amount
            if not held[name]:
                del held[name]
            column = _PLAIN_COLUMN.get(name)
            if column is not None:
                self.plain[column, at] -= sign * amount
        self._touch(at)

    def _touch(self, at: int) -> None:
        self.usage[at] = usage(zip(self.taken[:, at].tolist(), self.totals[:, at].tolist(), strict=True))
        self._note(at)

    def _note(self, at: int) -> None:
        self.log.append(at)
        if len(self.log) > LONGEST_LOG:
            self.log = []
            self.generation += 1

    def as_it_is(self, at: int) -> Undo:
        """Makes what is taken of the node, and the log, again what they are now."""
        columns = [(column, column[..., at].copy()) for column in (self.state, self.taken, self.usage, self.plain)]
        maps: list[dict[str, Any]] = [*self.tenants[at], self.resources[at]]
        held = [(each, each.copy()) for each in maps]
        log, length, generation = self.log, len(self.log), self.generation

        def undo() -> None:
            for column, values in columns:
                column[..., at] = values
            for each, before in held:
                each.clear()
                each.update(before)
            del log[length:]
            self.log, self.generation = log, generation

        return undo

    def cards(self, at: int) -> list[CardState]:
        """The node's cards as they are now."""
        _, slots_free, memory_free, cores_free, idle = self.state[..., at].tolist()
        cards = zip(self.nodes[at].devices, idle, slots_free, memory_free, cores_free, self.tenants[at], strict=True)
        return [CardState(device, -idle, *room) for device, idle, *room in cards]

    def free(self, at: int, name: str) -> int:
        """How much of a plain resource the node still has; what a node does not mention is not limited.

        An extended resource (one with a domain) that a node does not mention is not there, nor are huge pages.
        """
        allocatable = self.nodes[at].allocatable
        if name not in allocatable:
            return 0 if "/" in name or name.startswith("hugepages-") else UNLIMITED
        return allocatable[name] - self.resources[at].get(name, 0)

    def verdicts(self, key: Hashable, judge: Judge, fine: Verdicts | None = None) -> Verdicts:
        """What `judge` says to each node; remembered under `key` while somebody keeps it, and for some time after.

        `fine` has passed nodes to which `judge` has nothing to say either.
        """
        known = self._verdicts.get(key)
        if known is None:
            known = self._verdicts[key] = self.judged(judge, fine)
        self._recent[key] = known
        self._recent.move_to_end(key)
        if len(self._recent) > RECENT_VERDICTS:
            self._recent.popitem(last=False)
        return known

    def figures(self, figure: Callable[[Node], int]) -> Figures:
        """A number for each node, as long as somebody keeps the answer."""
        found = Figures(figure, self.room)
        for at in self:
            found.look(at, self.nodes[at])
        self._figures.add(found)
        return found

    def judged(self, judge: Judge, fine: Verdicts | None = None) -> Verdicts:
        """The same as of now, not remembered."""
        found = Verdicts(judge, self.room)
        for at in self:
            if fine is not None and fine.passes[at]:
                found.passes[at] = True
            else:
                found.look(at, self.nodes[at])
        return found

    @property
    def present(self) -> Bools:
        """For each of the first `size` positions whether there is a node."""
        there: Bools = self.plain[0, : self.size] != NOTHING
        return there

    def _entry(self, node: Node) -> dict[str, Any]:
        """What stands in the arrays, by name, for a node that nobody uses."""
        devices = node.devices
        slots, memory = [each.slots for each in devices], [each.memory_bytes for each in devices]
        cores = [each.cores for each in devices]
        gpus = [row for row, is_gpu in enumerate(self.is_gpu[: len(devices)]) if is_gpu]
        return {
            "state": [[_alive(each) for each in devices], slots, memory, cores, [0] * len(devices)],
            "memory": memory,
            "cores": cores,
            "types": [self._type(each) for each in devices],
            "totals": [sum([amounts[row] for row in gpus]) for amounts in (slots, cores, memory)],
            "taken": (0, 0, 0),
            "usage": 0,
            "plain": [node.allocatable.get(name, UNLIMITED) for name in PLAIN],
        }

    def _type(self, device: Device) -> int:
        kind = (device.model, device.mode)
        number = self._number_of.get(kind)
        if number is None:
            number = self._number_of[kind] = len(self.kinds)
            self.kinds.append(kind)
        return number
