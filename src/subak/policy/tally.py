"""Why nodes refuse, counted in columns: what thousands of nodes say to a request, at once.

    filters ── plain resources ── for each card the first rule that it fails ── the rule it came furthest with

The rules are those of `policy.fit`, as far as columns can tell; `columns` returns the nodes that must be asked one by
one because something else decides there: neighbours, wiring, instances, or several containers together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from subak.model.device import FULL_CORES, MIG
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Claim, Request
from subak.policy import Filter
from subak.policy.columns import distinct, id_verdicts, ids_admitted, memory_asked
from subak.snapshot.pool import ALIVE, CORES, IDLE, MEMORY, PLAIN, SLOTS, Bools, Column, Pool, Verdicts

CARD_REASONS = list(Reason)[: list(Reason).index(Reason.NODE_INSUFFICIENT_DEVICE)]
"""In the order in which a card comes further."""

_CODE = {reason: number for number, reason in enumerate(CARD_REASONS, 1)}
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Key:
    """What nodes of one group have in common.  Where `detail` is empty, the best figure tells it."""

    reason: str
    detail: str = ""
    asked: int = 0
    resource: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one node says.  `figure` is the number that a group shows the best of."""

    reason: str
    others: frozenset[Reason]
    detail: str = ""
    figure: int = 0
    asked: int = 0
    resource: str = ""


@dataclass(slots=True)
class Heap:
    """A group that is being counted; `first` is the first of its nodes by name."""

    key: Key
    count: int = 0
    figure: int = 0
    first: str = ""
    names: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """All groups.  With `named` the nodes are listed, else only counted."""

    named: bool = False
    nodes: int = 0
    fitting: list[str] = field(default_factory=list)
    heaps: dict[Key, Heap] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)

    def fit(self, pool: Pool, at: int) -> None:
        """The node takes the request."""
        self.nodes += 1
        self.fitting.append(pool.nodes[at].name)

    def add_one(self, pool: Pool, at: int, verdict: Verdict) -> None:
        """A node that was asked by itself."""
        key = Key(verdict.reason, verdict.detail, verdict.asked, verdict.resource)
        self._enter(pool, key, np.array([at]), verdict.figure)
        self.reasons.update(verdict.others | {verdict.reason})

    def add(self, pool: Pool, key: Key, refused: Bools, figures: Column | int = 0) -> None:
        """The nodes at these positions, and for each the figure of which the best is shown."""
        at = np.flatnonzero(refused)
        if len(at):
            best = figures if isinstance(figures, int) else int(figures[at].max())
            self._enter(pool, key, at, best)

    def _enter(self, pool: Pool, key: Key, at: npt.NDArray[np.intp], figure: int) -> None:
        heap = self.heaps.get(key)
        first = pool.nodes[int(at[pool.order[at].argmin()])].name
        if heap is None:
            heap = self.heaps[key] = Heap(key, figure=figure, first=first)
        heap.count += len(at)
        heap.figure, heap.first = max(heap.figure, figure), min(heap.first, first)
        self.nodes += len(at)
        if self.named:
            heap.names += [pool.nodes[each].name for each in at.tolist()]


def columns(pool: Pool, request: Request, filters: Sequence[Filter], tally: Tally) -> list[int]:
    """Count the nodes of a pool as far as columns can tell; the positions of those that must be asked."""
    left = pool.present
    for each in filters:
        verdicts = each.verdicts(pool, request)
        codes = verdicts.codes[: pool.size]
        refused = left & (codes > 0)
        if refused.any():
            _add_refusals(pool, verdicts, codes, refused, tally)
            left &= ~refused
    for name, amount in request.needs.resources:
        if left.any():
            left &= ~_short_of(pool, name, amount, left, tally)
    if left.any():
        left = _cards(pool, request, left, tally)
    positions: list[int] = np.flatnonzero(left).tolist()
    return positions


def _add_refusals(pool: Pool, verdicts: Verdicts, codes: npt.NDArray[np.int32], refused: Bools, tally: Tally) -> None:
    """Count nodes that a filter refuses."""
    for code, count in enumerate(np.bincount(codes[refused]).tolist()):
        if count:
            refusal = verdicts.texts[code]
            assert isinstance(refusal, NodeRefusal), "a filter says nothing else"
            tally.add(pool, Key(refusal.reason, refusal.detail), refused & (codes == code))
            tally.reasons[refusal.reason] += count


def _short_of(pool: Pool, name: str, amount: int, left: Bools, tally: Tally) -> Bools:
    """The nodes that have too little of a plain resource."""
    if name in PLAIN:
        free = pool.plain[PLAIN.index(name), : pool.size]
    else:
        each = ((pool.free(at, name) if there else 0) for at, there in enumerate(left.tolist()))
        free = np.fromiter(each, np.int64, pool.size)
    short: Bools = left & (free < amount)
    if short.any():
        tally.add(pool, Key(Reason.NODE_INSUFFICIENT_RESOURCE, "", amount, name), short, free)
        tally.reasons[Reason.NODE_INSUFFICIENT_RESOURCE] += int(short.sum())
    return short


def _cards(pool: Pool, request: Request, left: Bools, tally: Tally) -> Bools:
    """Count the nodes whose cards do not fit the first claim that does not even fit alone."""
    claims = distinct(request.claims)
    rows_of = [[row for row, (family, _) in enumerate(pool.make) if family in claim.families] for claim in claims]
    for claim, rows in zip(claims, rows_of, strict=True):
        if claim.instances and any(mode == MIG for _, mode in pool.kinds):
            continue  # one card may count several times
        if len(rows) < claim.count:
            tally.add(pool, Key(Reason.NODE_INSUFFICIENT_DEVICE, "", claim.count), left, len(rows))
            tally.reasons[Reason.NODE_INSUFFICIENT_DEVICE] += int(left.sum())
            return np.zeros_like(left)
    for claim, rows in zip(claims, rows_of, strict=True):
        if not _in_columns(pool, claim):
            return left
        left = left & ~_too_few(pool, claim, rows, left, tally)
    return left


def _in_columns(pool: Pool, claim: Claim) -> bool:
    """Whether no rule for the claim's cards looks at more than columns hold."""
    return (
        claim.rules.in_columns([family for family, _ in pool.make])
        and not claim.extras
        and not claim.selection.labels
        and not claim.everywhere
        and not claim.policy.numa_bind
        and all(mode != MIG for _, mode in pool.kinds)
    )


def _too_few(pool: Pool, claim: Claim, rows: list[int], left: Bools, tally: Tally) -> Bools:
    """The nodes on which too few cards pass, counted by the rule that they came furthest with."""
    codes = _codes(pool, claim, rows)
    passing = (codes == 0).sum(axis=0)
    short: Bools = left & (passing < claim.count)
    if not short.any():
        return short
    present = np.bincount(codes[:, short].ravel(), minlength=len(CARD_REASONS) + 1)
    for reason, code in _CODE.items():
        if present[code]:
            tally.reasons[reason] += int(((codes == code).any(axis=0) & short).sum())
    some = short & (passing > 0)
    if some.any():
        tally.reasons[Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST] += int(some.sum())
        tally.add(pool, Key(Reason.ALLOCATED_CARDS_INSUFFICIENT_REQUEST, "", claim.count), some, passing)
    none, furthest = short & ~some, codes.max(axis=0)
    for code in np.unique(furthest[none]).tolist():
        _add(pool, claim, rows, codes, code, none & (furthest == code), tally)
    return short


def _add(pool: Pool, claim: Claim, rows: list[int], codes: Codes, code: int, nodes: Bools, tally: Tally) -> None:
    """Count nodes whose cards came furthest with the same rule, by what is missing."""
    reason, size = CARD_REASONS[code - 1], pool.size
    mine = codes == code
    if reason is Reason.CARD_INSUFFICIENT_MEMORY:
        free = np.where(mine, pool.state[MEMORY][rows, :size], np.iinfo(np.int64).min)
        best = free.argmax(axis=0)
        asked = np.take_along_axis(memory_asked(claim, pool.memory[rows, :size]), best[None], axis=0)[0]
        for amount in np.unique(asked[nodes]).tolist():
            tally.add(pool, Key(reason, "", amount), nodes & (asked == amount), free.max(axis=0))
    elif reason is Reason.CARD_INSUFFICIENT_CORE:
        free = np.where(mine, pool.state[CORES][rows, :size], np.iinfo(np.int64).min)
        tally.add(pool, Key(reason, "", claim.cores), nodes, free.max(axis=0))
    else:
        tally.add(pool, Key(reason, "", len(rows)), nodes, mine.sum(axis=0))


def _codes(pool: Pool, claim: Claim, rows: list[int]) -> Codes:
    """For each card the code of the first rule that it fails, 0 if it passes."""
    codes = np.zeros((len(rows), pool.size), np.int8)
    for reason, failed in reversed(list(_failures(pool, claim, rows))):
        codes[failed] = _CODE[reason]
    return codes


def _failures(pool: Pool, claim: Claim, rows: list[int]) -> Iterator[tuple[Reason, Bools]]:
    """The rules in their order, and which cards fail each."""
    size = pool.size
    alive, slots, memory, cores, idle = (pool.state[each][rows, :size] for each in (ALIVE, SLOTS, MEMORY, CORES, IDLE))
    yield Reason.CARD_NOT_HEALTH, alive < 0
    yield Reason.CARD_CORDONED, alive == 0
    wanted = [claim.selection.admits_type(model) and claim.selection.admits_mode(mode) for model, mode in pool.kinds]
    if not all(wanted):
        yield Reason.CARD_TYPE_MISMATCH, ~np.array(wanted)[pool.types[rows, :size]]
    ids = id_verdicts(pool, claim)
    if ids is not None:
        yield Reason.CARD_UUID_MISMATCH, ~ids_admitted(ids, slice(0, size), len(pool.make))[rows]
    if claim.slotted:
        yield Reason.CARD_TIME_SLICING_EXHAUSTED, slots <= 0
    if claim.idle or claim.policy.mutex:
        yield Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, idle < 0
    asked = memory_asked(claim, pool.memory[rows, :size])
    yield Reason.CARD_INSUFFICIENT_MEMORY, (asked > 0) & (memory < asked)
    if claim.cores:
        yield Reason.CARD_INSUFFICIENT_CORE, cores < claim.cores
        if claim.slotted and claim.cores == FULL_CORES:
            whole = pool.cores[rows, :size] == FULL_CORES
            yield Reason.EXCLUSIVE_DEVICE_ALLOCATE_CONFLICT, whole & (idle < 0)
    elif claim.slotted:
        yield Reason.CARD_COMPUTE_UNITS_EXHAUSTED, cores <= 0
