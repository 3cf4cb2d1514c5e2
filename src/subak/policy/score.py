"""Which node: the highest score wins, the first by name among equals.

    use(node)     = slots used/slots + cores used/cores + memory used/memory, over all GPUs of the node, before the pod
    binpack       = + use,  spread = - use
    Koordinator   = its own LeastAllocated or MostAllocated (`policy.allocated`)
    MetaX         adds what the links of the chosen cards are worth, which outweighs use: of whole cards what is lost,
                  then how well they are linked (under spread the other way round)

HAMi prints ten times `use`; we keep millionths, so that comparisons are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from subak.dialects import metax_links as metax
from subak.model.card import CardState
from subak.model.device import FULL_CORES, GPU
from subak.model.node import Node
from subak.model.placement import Grant
from subak.model.request import LEAST_ALLOCATED, MOST_ALLOCATED, SPREAD, Claim, Pick, Request
from subak.policy import allocated
from subak.snapshot.pool import SCALE, usage

POINT = SCALE // 10
"""One point of HAMi's node score."""

LINKED = 1 << 22
"""More than the use of any node: the links of whole MetaX cards decide first."""

ALLOCATED = (LEAST_ALLOCATED, MOST_ALLOCATED)


def use(cards: Iterable[CardState]) -> int:
    """How full a node is."""
    gpus = [card for card in cards if card.device.kind == GPU]
    return usage(
        (
            (sum(card.slots_used for card in gpus), sum(card.device.slots for card in gpus)),
            (sum(card.cores_used for card in gpus), sum(card.device.cores for card in gpus)),
            (sum(card.memory_used for card in gpus), sum(card.device.memory_bytes for card in gpus)),
        )
    )


def depends_on_cards(request: Request) -> bool:
    """Whether a node's score cannot be told before its cards are chosen."""
    return any(
        claim.policy.pick in (Pick.ONLINE, Pick.METAXLINK)
        or (claim.policy.pick == Pick.ZONES and request.topology_aware)
        for claim in request.claims
    )


def node_score(node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
    """The score of a node whose `cards`, as they were before, would give these grants."""
    if request.node_policy in ALLOCATED and request.claims:
        return allocated.node_score(cards, request.claims[0], request.node_policy)
    points = sum(
        _link_points(node, cards, request, claim, given) for claim, given in zip(request.claims, grants, strict=True)
    )
    total = use(cards) + points * POINT
    if any(claim.policy.pick == Pick.METAXLINK for claim in request.claims):
        total += _metaxlink_points(node, cards, request) * LINKED
    return -total if request.node_policy == SPREAD else total


def _link_points(node: Node, cards: Sequence[CardState], request: Request, claim: Claim, given: Grant) -> int:
    """What MetaX sGPU adds, in HAMi's points, weighted so that it works the same way under both policies."""
    chosen = {share.id for share in given.shares}
    if claim.policy.pick == Pick.ONLINE:
        raw = sum(metax.online_score(_classes(card)) for card in cards if card.device.id in chosen)
    elif claim.policy.pick == Pick.ZONES and request.topology_aware and claim.cores == FULL_CORES:
        free = [card for card in cards if card.device.family in claim.families and not card.used]
        raw = metax.zone_score(
            [card.device.zone for card in free],
            [card.device.zone for card in free if card.device.id in chosen],
        )
    else:
        return 0
    return metax.weighted(raw, request.node_policy)


def _classes(card: CardState) -> list[str]:
    return [charge.tag[1] for charge in card.tenants.values()]


def _metaxlink_points(node: Node, cards: Sequence[CardState], request: Request) -> int:
    """What MetaX's topology tables say of taking this many whole cards."""
    wanted = [claim for claim in request.claims if claim.policy.pick == Pick.METAXLINK]
    free = [card.device for card in cards if card.device.family in wanted[0].families and not card.used]
    return metax.node_points(request.node_policy, sum(claim.count for claim in wanted), free, node.tables)
