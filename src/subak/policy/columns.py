"""The same rules over whole columns: which nodes may take a request, and their scores, for thousands of nodes at once.

The columns know sizes, health and use, not who the neighbours are; so a node that passes here may still be refused by
`on_node`, never the other way round.  `place` asks `on_node` about the best node only, and strikes it out if refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from subak.model.device import FULL_CORES
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.placement import Grant, Share, charges
from subak.model.request import SPREAD, Claim, Request
from subak.policy import allocated, node, score
from subak.policy.fit import ONLINE
from subak.policy.mig import MODE as MIG
from subak.policy.on_node import on_node
from subak.snapshot.pool import IDLE, MEMORY, PLAIN, UNLIMITED, Column, Flags, Pool
from subak.snapshot.scores import NEVER, Evaluate, Positions

Part = Callable[[Positions], Flags]


def prepare(pool: Pool, request: Request) -> Evaluate | None:
    """The evaluator of a request for a pool; None if the make of its nodes rules it out."""
    parts: list[Part] = []
    for claim in _representative(request):
        part = _claim_part(pool, claim)
        if part is None:
            return None
        parts.append(part)
    parts += _resource_parts(pool, request)
    admitted = _admitted(pool, request)
    nobody = not admitted.any()  # as in a pool where no node speaks the dialect
    scored = _exact_scores(pool, request) if score.depends_on_cards(request) else _plain_scores(pool, request)

    def evaluate(at: Positions, changed: bool) -> Column:
        nonlocal nobody
        if changed:
            for position in at.tolist():
                admitted[position] = _admits(pool, position, request)
            nobody = not admitted.any()
        if nobody:
            return np.full(len(at), NEVER, np.int64)
        possible = admitted[at]
        for part in parts:
            possible &= part(at)
        return scored(at, possible)

    return evaluate


def _representative(request: Request) -> Sequence[Claim]:
    """The claims to test: those that stay together count as one, for all that they take of their card at the peak."""
    claims = [claim for claim in request.claims if not claim.together or claim.memory_percent]
    for dialect in {claim.dialect for claim in request.claims}:
        together = [claim for claim in request.claims if claim.dialect == dialect and claim not in claims]
        if together:
            grants = [
                Grant(dialect, claim.containers, claim.role, (Share("", 0, claim.memory_bytes, claim.cores),))
                for claim in together
            ]
            peak = charges(grants)[""]
            claims.append(replace(together[0], memory_bytes=peak.memory_bytes, cores=peak.cores, role=Role.APP))
    return claims


def _claim_part(pool: Pool, claim: Claim) -> Part | None:
    """Whether enough cards of a node pass the rules that columns can tell: of each row of the state, so much."""
    rows = [row for row, (family, _) in enumerate(pool.make) if family in claim.families]
    wanted = np.array(
        [claim.selection.admits_type(model) and claim.selection.admits_mode(mode) for model, mode in pool.kinds]
    )
    # Instances of a card in MIG mode count as cards; how many are left of one, only `on_node` can tell.
    most = np.array([claim.count if claim.instances and mode == MIG else 1 for _, mode in pool.kinds])
    stacks = bool((most > 1).any())
    if (len(rows) < claim.count and not stacks) or not wanted.any():
        return None
    chosen = slice(None) if len(rows) == len(pool.make) else np.array(rows, np.intp)
    least = np.array([1, 1, claim.memory_bytes, _cores(claim), -UNLIMITED], np.int64)[:, None]
    # Containers that stay together may sum up to all cores without any of them asking for a card alone.
    whole = claim.cores == FULL_CORES and not claim.together
    if claim.idle or claim.policy.mutex or (whole and (pool.cores[:, chosen] == FULL_CORES).all()):
        least[IDLE] = 0
    percent = bool(claim.memory_percent and not claim.memory_bytes)
    named = claim.selection.use_ids or claim.selection.nouse_ids

    def part(at: Positions) -> Flags:
        state = pool.state.take(at, axis=0)[:, :, chosen]
        fits: Flags = np.logical_and.reduce(state >= least, axis=1)
        if percent:
            fits &= state[:, MEMORY] >= _percentage(claim, pool.memory.take(at, axis=0)[:, chosen])
        if not wanted.all():
            fits &= wanted[pool.types.take(at, axis=0)[:, chosen]]
        if named:
            fits &= _ids_admitted(pool, claim, rows, at)
        if claim.count == 1:
            any_card: Flags = np.logical_or.reduce(fits, axis=1)
            return any_card
        found = fits * most[pool.types.take(at, axis=0)[:, chosen]] if stacks else fits
        enough: Flags = np.add.reduce(found, axis=1, dtype=np.intp) >= claim.count
        return enough

    return part


def _cores(claim: Claim) -> int:
    """The least free cores: one even for who asks for none, unless cores do not count."""
    return -UNLIMITED if claim.app_class == ONLINE else max(claim.cores, 1)


def _percentage(claim: Claim, memory: Column) -> Column:
    return memory // claim.granule * claim.memory_percent // 100 * claim.granule


def _ids_admitted(pool: Pool, claim: Claim, rows: Sequence[int], at: Positions) -> Flags:
    admitted = [[claim.selection.admits_id(pool.nodes[each].devices[row].id) for row in rows] for each in at.tolist()]
    return np.array(admitted, np.bool_).reshape(len(at), len(rows))


def _resource_parts(pool: Pool, request: Request) -> Iterator[Part]:
    """Whether a node has the plain resources: those with a column all at once, others one by one."""
    needs = dict(request.needs.resources)
    # Who asks for none of a resource does not mind that others took more of it than there is.
    least = np.array([needs.get(name, -UNLIMITED) for name in PLAIN], np.int64)

    def plain(at: Positions) -> Flags:
        enough: Flags = np.logical_and.reduce(pool.plain.take(at, axis=0) >= least, axis=1)
        return enough

    yield plain
    for name in needs.keys() - set(PLAIN):
        yield partial(_has, pool, name, needs[name])


def _has(pool: Pool, name: str, amount: int, at: Positions) -> Flags:
    return np.fromiter((pool.free(each, name) >= amount for each in at.tolist()), np.bool_, len(at))


def _admitted(pool: Pool, request: Request) -> Flags:
    """For each node whether its own terms let the pod in."""
    if not node.unrestricted(request.needs):
        return np.fromiter((_admits(pool, each, request) for each in range(len(pool))), np.bool_, len(pool))
    admitted = pool.flags("ordinary", node.ordinary).copy()
    if request.needs.tolerations:
        for each in np.flatnonzero(~admitted).tolist():
            admitted[each] = node.refuse_node(pool.nodes[each], request.needs) is None
    for claim in request.claims:
        # The key names all that the rule reads of the claim, so that claims of one dialect share the answer.
        admitted &= pool.flags((claim.dialect, claim.isolation), partial(_speaks, claim))
    return admitted


def _speaks(claim: Claim, each: Node) -> bool:
    return node.refuse_dialect(each, claim) is None


def _admits(pool: Pool, position: int, request: Request) -> bool:
    each = pool.nodes[position]
    return node.refuse_node(each, request.needs) is None and all(
        node.refuse_dialect(each, claim) is None for claim in request.claims
    )


Scored = Callable[[Positions, Flags], Column]


def _plain_scores(pool: Pool, request: Request) -> Scored:
    """Scores that follow from the columns alone."""
    if request.node_policy in score.ALLOCATED and request.claims:
        claim = request.claims[0]
        return lambda at, possible: np.where(
            possible, allocated.node_scores(pool, at, claim, request.node_policy), NEVER
        )
    if request.node_policy == SPREAD:
        return lambda at, possible: np.where(possible, -pool.usage[at], NEVER)
    return lambda at, possible: np.where(possible, pool.usage[at], NEVER)


def _exact_scores(pool: Pool, request: Request) -> Scored:
    """Scores that need the very cards: each node that may take the pod is tried."""

    def scored(at: Positions, possible: Flags) -> Column:
        scores = np.full(len(at), NEVER, np.int64)
        for i in np.flatnonzero(possible).tolist():
            where = int(at[i])
            grants = on_node(pool.nodes[where], pool.cards(where), request)
            if isinstance(grants, tuple):
                scores[i] = score.node_score(pool.nodes[where], pool.cards(where), request, grants)
        return scores

    return scored
