"""The same rules over whole columns: which nodes may take a request, and their scores, for thousands of nodes at once.

The columns know sizes, health and use, not who the neighbours are; so a node that passes here may still be refused by
`on_node`, never the other way round.  `place` asks `on_node` about the best node only, and strikes it out if refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from subak.policy.on_node import on_node
from subak.snapshot.pool import PLAIN, Column, Flags, Pool
from subak.snapshot.scores import NEVER, Evaluate, Positions

Part = Callable[[Positions], Flags]


def prepare(pool: Pool, request: Request) -> Evaluate | None:
    """The evaluator of a request for a pool; None if the make of its nodes rules it out."""
    parts: list[Part] = []
    for claim in _representative(request):
        rows = _rows(pool, claim)
        if len(rows) < claim.count:
            return None
        parts.append(_claim_part(pool, claim, rows))
    for name, amount in request.needs.resources:
        parts.append(_resource_part(pool, name, amount))
    admitted = _admitted(pool, request)
    scored = _exact_scores(pool, request) if score.depends_on_cards(request) else _plain_scores(pool, request)

    def evaluate(at: Positions, changed: bool) -> Column:
        if changed:
            for position in at.tolist():
                admitted[position] = _admits(pool, position, request)
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


def _rows(pool: Pool, claim: Claim) -> list[int]:
    """The rows whose cards are of a kind that the claim takes."""
    return [
        row
        for row, (family, model, mode, _) in enumerate(pool.make)
        if family in claim.families and claim.selection.admits_type(model) and claim.selection.admits_mode(mode)
    ]


def _claim_part(pool: Pool, claim: Claim, rows: Sequence[int]) -> Part:
    """Whether enough cards of a node pass the rules that columns can tell."""
    whole_pool = len(rows) == len(pool.make)
    grid = np.array(rows, np.intp)[:, None]
    chosen = claim.selection.use_ids or claim.selection.nouse_ids
    compute = claim.app_class != ONLINE

    def part(at: Positions) -> Flags:
        def cut(column: Column) -> Column:
            return column[:, at] if whole_pool else column[grid, at]

        fits: Flags = pool.alive[:, at] if whole_pool else pool.alive[grid, at]
        fits &= cut(pool.slots_free) > 0
        memory = claim.memory_bytes or _percentage(claim, cut(pool.memory))
        fits &= cut(pool.memory_free) >= memory
        if claim.idle or claim.policy.mutex:
            fits &= cut(pool.used) == 0
        if compute:
            free = cut(pool.cores_free)
            if claim.cores == 0:
                fits &= free > 0
            else:
                fits &= free >= claim.cores
                if claim.cores == FULL_CORES:
                    fits &= (cut(pool.used) == 0) | (cut(pool.cores) != FULL_CORES)
        if chosen:
            fits &= _ids_admitted(pool, claim, rows, at)
        enough: Flags = fits.sum(axis=0) >= claim.count
        return enough

    return part


def _percentage(claim: Claim, memory: Column) -> Column | int:
    if not claim.memory_percent:
        return 0
    return memory // claim.granule * claim.memory_percent // 100 * claim.granule


def _ids_admitted(pool: Pool, claim: Claim, rows: Sequence[int], at: Positions) -> Flags:
    return np.array(
        [[claim.selection.admits_id(pool.nodes[each].devices[row].id) for each in at.tolist()] for row in rows],
        np.bool_,
    ).reshape(len(rows), len(at))


def _resource_part(pool: Pool, name: str, amount: int) -> Part:
    if name in PLAIN:
        return lambda at: pool.plain[name][at] >= amount
    return lambda at: np.fromiter((pool.free(each, name) >= amount for each in at.tolist()), np.bool_, len(at))


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
