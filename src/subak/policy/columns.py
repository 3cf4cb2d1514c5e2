"""The same rules over whole columns: which nodes may take a request, and their scores, for thousands of nodes at once.

The columns know sizes, health and use, not who the neighbours are; so a node that passes here may still be refused by
`on_node`, never the other way round.  `place` asks `on_node` about the best node only, and strikes it out if refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter

import numpy as np

from subak.model.device import FULL_CORES, MIG
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Share, charges
from subak.model.request import Claim, Request
from subak.policy import registry
from subak.policy.node import ANYBODY
from subak.policy.on_node import on_node
from subak.snapshot.pool import ALIVE, CORES, IDLE, MEMORY, PLAIN, SLOTS, Bools, Column, Pool, Verdicts
from subak.snapshot.scores import NEVER, Evaluator, Where, shared

Part = Callable[[Where], Bools]

# What a claim asks for, without the containers that do.
_ASKED = attrgetter(*(each.name for each in fields(Claim) if each.name not in ("containers", "role")))


def prepare(pool: Pool, request: Request) -> Evaluator | None:
    """The evaluator of a request for a pool; None if the make of its nodes rules it out."""
    parts = _parts(pool, request)
    if parts is None:
        return None
    column = registry.score_of(request).column(pool, request)
    scores = column or _exact_scores(pool, request)
    if column is not None and request.mixture is not None and request.mixture.cards:
        scores = partial(_sum, column, _exact_scores(pool, request))

    def evaluate(at: Where) -> Column:
        possible = parts[0](at).copy()
        for part in parts[1:]:
            if not possible.any():  # as in a pool where no node speaks the dialect
                break
            possible &= part(at)
        return np.where(possible, scores(at), NEVER)

    return Evaluator(evaluate, one_by_one=column is None)


def _sum(column: Callable[[Where], Column], cards: Callable[[Where], Column], at: Where) -> Column:
    """Both scores together; NEVER where the node has no cards for the request."""
    points = cards(at)
    return np.where(points == NEVER, NEVER, column(at) + points)


def possible(pool: Pool, request: Request) -> Bools:
    """The nodes that may take the request."""
    parts = _parts(pool, request)
    if parts is None:
        return np.zeros(pool.size, np.bool_)
    passes: Bools = np.logical_and.reduce([part(slice(0, pool.size)) for part in parts])
    return passes & pool.present


def _parts(pool: Pool, request: Request) -> list[Part] | None:
    """All rules; None if the make of the pool's nodes rules the request out."""
    parts: list[Part] = [partial(_passes, each.verdicts(pool, request)) for each in registry.FILTERS.values()]
    for claim in distinct(representative(request)):
        part = _claim_part(pool, claim)
        if part is None:
            return None
        parts.append(part)
    return [*parts, *_resource_parts(pool, request)]


def representative(request: Request) -> Sequence[Claim]:
    """The claims to test: those that stay together count as one, for all that they take of their card at the peak."""
    claims: list[Claim] = []
    staying: dict[str, list[Claim]] = {}
    for claim in request.claims:
        if claim.together and not claim.memory_percent:
            staying.setdefault(claim.dialect, []).append(claim)
        else:
            claims.append(claim)
    for dialect, together in staying.items():
        grants = [
            Grant(dialect, claim.containers, claim.role, (Share("", 0, claim.memory_bytes, claim.cores),))
            for claim in together
        ]
        peak = charges(grants)[""]
        claims.append(replace(together[0], memory_bytes=peak.memory_bytes, cores=peak.cores, role=Role.APP))
    return claims


def distinct(claims: Sequence[Claim]) -> Sequence[Claim]:
    """The first of all claims that ask for the same, whoever asks: one of thousands of containers stands for all."""
    if len(claims) < 2:
        return claims
    found: dict[Hashable, Claim] = {}
    for claim in claims:
        found.setdefault(_ASKED(claim), claim)
    return list(found.values())


def _claim_part(pool: Pool, claim: Claim) -> Part | None:
    """Whether enough cards of a node pass the rules that columns can tell."""
    rows = [row for row, (family, _) in enumerate(pool.make) if family in claim.families]
    stacks = claim.instances and claim.count > 1  # instances of a card in MIG mode count as cards
    if len(rows) < claim.count and not stacks:
        return None
    chosen = slice(None) if len(rows) == len(pool.make) else np.array(rows, np.intp)
    minimum = list(least(claim))
    # Containers that stay together may sum up to all cores without any of them asking for a card alone.
    whole = claim.cores == FULL_CORES and claim.slotted and not claim.together
    percent = bool(claim.memory_percent and not claim.memory_bytes)
    ids = id_verdicts(pool, claim)
    wanted: list[bool] = []

    def part(at: Where) -> Bools:
        for model, mode in pool.kinds[len(wanted) :]:
            wanted.append(claim.selection.admits_type(model) and claim.selection.admits_mode(mode))
        fits: Bools = pool.state[ALIVE][:, at][chosen] > 0
        for row, amount in minimum:
            fits &= pool.state[row][:, at][chosen] >= amount
        if whole:
            fits &= (pool.state[IDLE][:, at][chosen] == 0) | (pool.cores[:, at][chosen] != FULL_CORES)
        if percent:
            asked = memory_asked(claim, pool.memory[:, at][chosen])
            fits &= np.maximum(pool.state[MEMORY][:, at][chosen], 0) >= asked
        if not all(wanted):
            fits &= np.array(wanted)[pool.types[:, at][chosen]]
        if ids is not None:
            fits &= ids_admitted(ids, at, len(pool.make))[chosen]
        if claim.count == 1:
            any_card: Bools = np.logical_or.reduce(fits, axis=0)
            return any_card
        if stacks:  # how many instances are left of a card, only `on_node` can tell
            most = np.array([claim.count if mode == MIG else 1 for _, mode in pool.kinds])
            many: Bools = np.add.reduce(fits * most[pool.types[:, at][chosen]], axis=0) >= claim.count
            return many
        enough: Bools = np.add.reduce(fits, axis=0, dtype=np.intp) >= claim.count
        return enough

    return part


def least(claim: Claim) -> Iterator[tuple[int, int]]:
    """How much a card must have left, by row of the state.  What is not asked for may be overcommitted by others."""
    if claim.slotted:
        yield SLOTS, 1
    if claim.memory_bytes:
        yield MEMORY, claim.memory_bytes
    # In HAMi's way a card whose cores are all taken takes nobody else, unless this class of tenant ignores cores.
    cores = max(claim.cores, int(claim.slotted)) if claim.rules.counts_cores else 0
    if cores:
        yield CORES, cores
    if claim.idle or claim.policy.mutex:
        yield IDLE, 0


def memory_asked(claim: Claim, memory: Column) -> Column:
    """`Claim.memory_on` for cards of these sizes."""
    if claim.memory_bytes or not claim.memory_percent:
        return np.full_like(memory, claim.memory_bytes)
    return memory // claim.granule * claim.memory_percent // 100 * claim.granule


def id_verdicts(pool: Pool, claim: Claim) -> Verdicts | None:
    """Which cards of each node the user does not admit by their ids; None if any id will do."""
    selection = claim.selection
    if not selection.use_ids and not selection.nouse_ids:
        return None

    def judge(each: Node) -> frozenset[int] | None:
        rows = (row for row, device in enumerate(each.devices) if not selection.admits_id(device.id))
        return frozenset(rows) or None

    return pool.verdicts((selection.use_ids, selection.nouse_ids), judge)


def ids_admitted(ids: Verdicts, at: Where, cards: int) -> Bools:
    """For each card of these nodes whether its id is admitted."""
    refused = [text if isinstance(text, frozenset) else frozenset[int]() for text in ids.texts]
    table = np.array([[row not in rows for row in range(cards)] for rows in refused], np.bool_)
    return table[ids.codes[at]].T


def _resource_parts(pool: Pool, request: Request) -> Iterator[Part]:
    """Whether a node has the plain resources: those with a column all at once, others one by one."""
    needs = dict(request.needs.resources)
    for column, name in enumerate(PLAIN):
        # Who asks for none of a resource does not mind that others took more of it than there is.
        if name in needs:
            yield partial(_has_plain, pool, column, needs[name])
    for name in needs.keys() - set(PLAIN):
        yield partial(_has, pool, name, needs[name])


def _has_plain(pool: Pool, column: int, amount: int, at: Where) -> Bools:
    enough: Bools = pool.plain[column][at] >= amount
    return enough


def _has(pool: Pool, name: str, amount: int, at: Where) -> Bools:
    positions = range(pool.size)[at] if isinstance(at, slice) else at.tolist()
    return np.fromiter((pool.free(each, name) >= amount for each in positions), np.bool_, len(positions))


def _passes(verdicts: Verdicts, at: Where) -> Bools:
    return verdicts.passes[at]


def _exact_scores(pool: Pool, request: Request) -> Callable[[Where], Column]:
    """Scores that need the very grants: each node is tried, once for all shapes that ask for the same cards."""
    cards = replace(request, needs=ANYBODY)
    row = shared(pool, cards, lambda: Evaluator(partial(_tried, pool, cards), one_by_one=True))
    return lambda at: row.refresh()[at]


def _tried(pool: Pool, request: Request, at: Where) -> Column:
    """The scores of nodes, each of which is asked for cards; NEVER where it has none for the request."""
    parts = [part for claim in distinct(representative(request)) if (part := _claim_part(pool, claim)) is not None]
    possible = np.logical_and.reduce([pool.present[at], *[part(at) for part in parts]])
    score, scores = registry.score_of(request), np.full(len(possible), NEVER, np.int64)
    positions = range(pool.size)[at] if isinstance(at, slice) else at.tolist()
    for i in np.flatnonzero(possible).tolist():
        where = positions[i]
        cards = pool.cards(where)
        grants = on_node(pool.nodes[where], cards, request)
        if isinstance(grants, tuple):
            scores[i] = score.score(pool.nodes[where], pool.cards(where), request, grants)
    return scores
