"""Requests that wait, in columns: which of thousands may fit on a node where something was freed.

This is `columns` turned around: one node, many requests.  Like there, a request that passes may still be refused by the
full rules, never the other way round; so a request that does not pass need not be tried.  Only a pod's first claim
counts.
What a node says by its description alone is remembered until that changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from subak.model.device import FULL_CORES, MIG
from subak.model.node import Node
from subak.model.request import Claim, Request, Selection
from subak.policy import registry
from subak.policy.columns import least, representative
from subak.snapshot.cluster import Snapshot
from subak.snapshot.pool import ALIVE, IDLE, MEMORY, PLAIN, UNLIMITED, Bools, Column, Pool, Positions

_FIRST_ROOM = 64
_SPARE_TERMS = 256
_MOST_SIZES = 64
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class _Terms:
    """What of a request only the description of a node decides; requests with the same terms share the answer."""

    filtered: tuple[Hashable, ...]
    families: frozenset[str]
    selection: Selection
    count: int
    instances: bool
    request: Request = field(compare=False)

    @classmethod
    def of(cls, request: Request, first: Claim | None) -> _Terms:
        filtered = tuple([each.key(request) for each in registry.FILTERS.values()])
        if first is None:
            return cls(filtered, frozenset(), Selection(), 0, False, request)
        return cls(filtered, first.families, first.selection, first.count, first.instances, request)

    def met_by(self, node: Node) -> bool:
        if any(each.refuse(node, self.request) is not None for each in registry.FILTERS.values()):
            return False
        admitted = self._admits(node)
        cut = zip(admitted, node.devices, strict=True) if self.instances else ()
        return sum(admitted) >= self.count or any(admits and each.mode == MIG for admits, each in cut)

    def _admits(self, node: Node) -> list[bool]:
        """For each card whether the first claim could mean it."""
        wanted = self.selection
        return [
            each.family in self.families
            and wanted.admits_type(each.model)
            and wanted.admits_mode(each.mode)
            and wanted.admits_id(each.id)
            for each in node.devices
        ]


class Demand:
    """Waiting requests by number.  A number is given again after its request has left."""

    def __init__(self) -> None:
        self._room = _FIRST_ROOM
        self._need: Column = np.zeros((5, _FIRST_ROOM), np.int64)
        self._plain: Column = np.zeros((len(PLAIN), _FIRST_ROOM), np.int64)
        self._percent: Column = np.repeat([[0], [1]], _FIRST_ROOM, axis=1).astype(np.int64)
        self._count: Column = np.zeros(_FIRST_ROOM, np.int64)
        self._alone: Bools = np.zeros(_FIRST_ROOM, np.bool_)
        self._instances: Bools = np.zeros(_FIRST_ROOM, np.bool_)
        self._there: Bools = np.zeros(_FIRST_ROOM, np.bool_)
        self._of_terms: npt.NDArray[np.intp] = np.zeros(_FIRST_ROOM, np.intp)
        self._of_families: npt.NDArray[np.intp] = np.zeros(_FIRST_ROOM, np.intp)
        self._requests: dict[int, Request] = {}
        self._free: list[int] = []
        self._terms: dict[_Terms, int] = {}
        self._families: dict[frozenset[str], int] = {}
        self._known: dict[str, tuple[Node, npt.NDArray[np.int8]]] = {}
        self._of_size: dict[int, Column] = {}

    @property
    def room(self) -> int:
        """How long the answers of `may_fit` are."""
        return self._room

    def add(self, request: Request) -> int:
        """Take in a request that waits; its number."""
        at = self._free.pop() if self._free else len(self._requests)
        if at == self._room:
            self._grow()
        self._requests[at] = request
        self._there[at] = True
        self._describe(at, request)
        return at

    def remove(self, at: int) -> None:
        """The request waits no more."""
        del self._requests[at]
        self._there[at] = False
        self._free.append(at)

    def may_fit(
        self, snapshot: Snapshot, name: str, among: Bools | None = None, relief: tuple[Column, Column] | None = None
    ) -> Bools:
        """For each number whether its request may fit on this node as it is now; no other than those `among`.

        `relief` is what others would give back of its cards, and of the node itself, if they left.
        """
        home = snapshot.home(name)
        if home is None or not self._requests:
            return np.zeros(self._room, np.bool_)
        pool, at = home
        fits = self._there & self._met(pool.nodes[at])[self._of_terms] if among is None else among.copy()
        state, plain = pool.state[:, :, at], pool.plain[:, at]
        if relief is not None:
            state, plain = state + relief[0], plain + relief[1]
        for column in range(len(PLAIN)):
            fits &= plain[column] >= self._plain[column]
        if pool.make:
            left = np.flatnonzero(fits)
            fits[left] = self._enough_cards(pool, at, left, state[..., None])
        return fits

    def _enough_cards(self, pool: Pool, at: int, which: Positions, state: Column) -> Bools:
        """Whether as many cards as the first claim wants have what it asks for, of the requests with these numbers."""
        sizes = pool.memory[:, at]
        of_family = np.array([[family in each for each in self._families] for family, _ in pool.make], np.bool_)
        cards = of_family[:, self._of_families[which]] & (state[ALIVE] > 0)
        for row in range(1, 5):
            cards &= state[row] >= self._need[row, which]
        cards &= ~(self._alone[which] & (state[IDLE] < 0) & (pool.cores[:, at, None] == FULL_CORES))
        if self._percent[0, which].any():
            for size in set(sizes.tolist()):
                alike = np.flatnonzero(sizes == size)
                cards[alike] &= np.maximum(state[MEMORY][alike], 0) >= self._percentage_of(size)[which]
        enough: Bools = np.add.reduce(cards, axis=0, dtype=np.int64) >= self._count[which]
        node = pool.nodes[at]
        if node.cut:  # instances of a card in MIG mode count as cards; how many are left, only `on_node` can tell
            cut = [row for row, each in enumerate(node.devices) if each.mode == MIG]
            enough |= np.logical_or.reduce(cards[cut], axis=0) & self._instances[which]
        return enough

    def _percentage_of(self, size: int) -> Column:
        """What each request asks of a card of this size, if it asks for a percentage; less than nothing if not."""
        asked = self._of_size.get(size)
        if asked is None:
            if len(self._of_size) >= _MOST_SIZES:
                self._of_size.clear()
            percent, granule = self._percent
            asked = np.where(percent > 0, size // granule * percent // 100 * granule, -UNLIMITED)
            self._of_size[size] = asked
        return asked

    def _met(self, node: Node) -> Bools:
        """For each of the terms whether the node meets them."""
        known = self._known.get(node.name)
        answers = np.full(len(self._terms), _UNKNOWN, np.int8)
        if known is not None and known[0] is node:
            answers[: len(known[1])] = known[1]
        missing = np.flatnonzero(answers == _UNKNOWN)
        if len(missing):
            terms = list(self._terms)
            for each in missing.tolist():
                answers[each] = terms[each].met_by(node)
            self._known[node.name] = (node, answers)
        return answers.astype(np.bool_)

    def _describe(self, at: int, request: Request) -> None:
        first = next(iter(representative(request)), None)
        self._need[:, at] = -UNLIMITED
        needs = dict(request.needs.resources)
        self._plain[:, at] = [needs.get(name, -UNLIMITED) for name in PLAIN]
        self._count[at], self._alone[at], self._percent[:, at] = 0, False, (0, 1)
        self._instances[at] = False
        if first is not None:
            for row, amount in least(first):
                self._need[row, at] = amount
            self._count[at], self._instances[at] = first.count, first.instances
            self._alone[at] = first.slotted and first.cores == FULL_CORES and not first.together
            if first.memory_percent and not first.memory_bytes:
                self._percent[:, at] = (first.memory_percent, first.granule)
        percent, granule = self._percent[:, at].tolist()
        for size, asked in self._of_size.items():
            asked[at] = size // granule * percent // 100 * granule if percent else -UNLIMITED
        families = frozenset[str]() if first is None else first.families
        self._of_families[at] = self._families.setdefault(families, len(self._families))
        if len(self._terms) > 2 * len(self._requests) + _SPARE_TERMS:
            self._number_terms_anew()
        self._of_terms[at] = self._terms.setdefault(_Terms.of(request, first), len(self._terms))

    def _number_terms_anew(self) -> None:
        """Most terms are those of requests that have left."""
        self._terms, self._known = {}, {}
        for at, request in self._requests.items():
            terms = _Terms.of(request, next(iter(representative(request)), None))
            self._of_terms[at] = self._terms.setdefault(terms, len(self._terms))

    def _grow(self) -> None:
        for name in ("need", "plain", "percent", "count", "alone", "instances", "there", "of_terms", "of_families"):
            old = getattr(self, f"_{name}")
            setattr(self, f"_{name}", np.concatenate((old, np.zeros_like(old)), axis=-1))
        self._percent[1, self._room :] = 1
        self._room *= 2
        self._of_size.clear()
