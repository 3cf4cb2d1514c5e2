"""What the cluster has, kept up to date while nodes come, change and go.

    total    what all nodes that are ready have, as in Volcano; broken cards count for nothing
    usual    what a card of a family is like, for those who ask for percents of one
    used     what pods hold of the total, also those of no job; counted when somebody asks

Nodes that are closed to new pods count: what their pods hold does too.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np

from subak.batch.amounts import Amounts, add
from subak.dialects import Part
from subak.model.device import FULL_CORES, GPU, Device
from subak.model.node import Node
from subak.model.variables import SLOT
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import ALIVE, CORES, IDLE, MEMORY, PLAIN, SLOTS, UNLIMITED, Bools, Figures, Pool
from subak.snapshot.watcher import Watcher

OURS = frozenset({SLOT})
"""Resources that Subak itself adds to pods: no user limits them."""

_PARTS = {part.value: part for part in Part}
_IN_COLUMNS = {*PLAIN, *OURS}


class Card(NamedTuple):
    """What a card has, and what kind it is."""

    memory_bytes: int = 0
    cores: int = FULL_CORES
    kind: str = GPU

    @classmethod
    def of(cls, device: Device) -> Card:
        """Such a card as this one."""
        return cls(device.memory_bytes, device.cores, device.kind)


def dimension(family: str, part: Part) -> str:
    """The name under which a part of a family's cards is counted."""
    return f"{family}/{part.value}"


def card_part(name: str) -> tuple[str, Part] | None:
    """The family and the part of its cards that a name means; None if it means no cards.  Vendors are no domains."""
    family, _, part = name.partition("/")
    return (family, _PARTS[part]) if part in _PARTS and "." not in family else None


class Capacity(Watcher):
    """One for each snapshot: `snapshot.watched(Capacity)`.

    `total` is always the same object.  `version` grows when the usual cards, or the names in `total`, become others:
    estimates that rest on them are worth another look.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.total: dict[str, float] = {}
        self.version = 0
        self._snapshot = snapshot
        self._nodes: dict[str, Node] = {}
        self._cards: dict[str, Counter[Card]] = {}
        self._usual: dict[str, Card] = {}
        self._ready: WeakKeyDictionary[Pool, Figures] = WeakKeyDictionary()

    @classmethod
    def start(cls, snapshot: Snapshot) -> Self:
        return cls(snapshot)

    def usual(self, family: str) -> Card | None:
        """The size that most cards of a family have, the smallest of several; None if there are no such cards."""
        return self._usual.get(family)

    def commonest(self, families: frozenset[str]) -> str:
        """Of these families the one of which the cluster has most cards; ties go by name."""
        return min(families, key=lambda each: (-self._gpus(each), each))

    def node_seen(self, node: Node) -> None:
        old = self._nodes.pop(node.name, None)
        if old is not None and _alike(old, node):
            self._nodes[node.name] = node
            return
        names = set(self.total)
        if old is not None:
            self._count(old, -1)
        if node.ready:
            self._nodes[node.name] = node
            self._count(node, 1)
        self._notice({*_families(node), *(() if old is None else _families(old))}, names != set(self.total))

    def node_gone(self, name: str) -> None:
        old = self._nodes.pop(name, None)
        if old is not None:
            names = set(self.total)
            self._count(old, -1)
            self._notice(_families(old), names != set(self.total))

    def used(self) -> dict[str, float]:
        """What all pods hold on the nodes that are in the total."""
        left: dict[str, float] = {}
        others: dict[str, float] = {}
        for pool in self._snapshot.pools:
            ready = self._ready_in(pool)
            for name, column in zip(PLAIN, pool.plain, strict=True):
                # Where a node sets no limit, the sum is beyond 64 bits.
                left[name] = left.get(name, 0) + sum(column[: pool.size][ready].tolist())
            for row, (family, kind) in enumerate(pool.make):
                for name, amount in _left(pool, row, ready, family, kind == GPU).items():
                    left[name] = left.get(name, 0) + amount
            for at in np.flatnonzero(ready).tolist():
                held = pool.resources[at]
                if not _IN_COLUMNS.issuperset(held):
                    add(others, {name: held[name] for name in held.keys() - _IN_COLUMNS})
        used = {name: self.total.get(name, 0) - amount for name, amount in left.items()}
        return {name: amount for name, amount in (used | others).items() if amount}

    def _gpus(self, family: str) -> int:
        return sum(count for card, count in self._cards.get(family, {}).items() if card.kind == GPU)

    def _count(self, node: Node, sign: int) -> None:
        add(self.total, _of_node(node), sign)
        for device in node.devices:
            if device.healthy:
                counter, card = self._cards.setdefault(device.family, Counter()), Card.of(device)
                counter[card] += sign
                if not counter[card]:
                    del counter[card]

    def _notice(self, families: set[str], renamed: bool) -> None:
        before = dict(self._usual)
        for family in families:
            cards = self._cards.get(family)
            if cards:
                self._usual[family] = min((-count, card) for card, count in cards.items())[1]
            else:
                self._usual.pop(family, None)
        if renamed or before != self._usual:
            self.version += 1

    def _ready_in(self, pool: Pool) -> Bools:
        figures = self._ready.get(pool)
        if figures is None:
            figures = self._ready[pool] = pool.figures(lambda node: node.ready)
        return figures.values[: pool.size] > 0


def of_card(device: Device) -> dict[str, float]:
    """What a card has."""
    amounts = {
        dimension(device.family, Part.MEMORY): device.memory_bytes,
        dimension(device.family, Part.CORES): device.cores,
    }
    if device.kind == GPU:
        amounts |= {dimension(device.family, Part.SLOTS): device.slots, dimension(device.family, Part.CARDS): 1}
    return {name: amount for name, amount in amounts.items() if amount}


def _of_node(node: Node) -> Amounts:
    """What a node has; a plain resource that it does not mention has no limit."""
    amounts: dict[str, float] = dict.fromkeys(PLAIN, UNLIMITED)
    amounts |= {name: amount for name, amount in node.allocatable.items() if name not in OURS}
    for device in node.devices:
        if device.healthy:
            add(amounts, of_card(device))
    return amounts


def _left(pool: Pool, row: int, ready: Bools, family: str, is_gpu: bool) -> Amounts:
    """What is left of the cards in one row: of those that work, on nodes that are ready."""
    state = pool.state[:, row, : pool.size]
    state = state[:, ready & (state[ALIVE] >= 0)]
    amounts = {
        dimension(family, Part.MEMORY): int(state[MEMORY].sum()),
        dimension(family, Part.CORES): int(state[CORES].sum()),
    }
    if is_gpu:
        full = (state[IDLE] < 0) & ((state[MEMORY] <= 0) | (state[CORES] <= 0))
        amounts[dimension(family, Part.SLOTS)] = int(state[SLOTS].sum())
        amounts[dimension(family, Part.CARDS)] = int((~full).sum())
    return amounts


def _alike(old: Node, new: Node) -> bool:
    """Whether both count for the same: most news of a node is its heartbeat."""
    return old.ready == new.ready and old.allocatable == new.allocatable and old.devices == new.devices


def _families(node: Node) -> set[str]:
    return {device.family for device in node.devices}
