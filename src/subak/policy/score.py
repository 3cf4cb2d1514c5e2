"""Which node by use: fill the fullest, or spread to the emptiest.

    use(node) = slots used/slots + cores used/cores + memory used/memory, over all GPUs of the node, before the pod,
                and what the claims' rules add for the chosen cards
    binpack   = + use,  spread = - use

HAMi prints ten times `use`; we keep millionths, so that comparisons are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from subak.model.card import CardState
from subak.model.device import GPU
from subak.model.node import Node
from subak.model.placement import Grant
from subak.model.request import Claim, Request
from subak.model.rules import Rules
from subak.policy import NodeScore
from subak.snapshot.pool import Column, Pool, usage
from subak.snapshot.scores import Where


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


@dataclass(frozen=True)
class Use(NodeScore):
    """Fill nodes (`sign` 1) or spread over them (-1)."""

    name: str
    sign: int

    def score(self, node: Node, cards: Sequence[CardState], request: Request, grants: Sequence[Grant]) -> int:
        total = use(cards)
        served: dict[Rules, list[tuple[Claim, Grant]]] = {}
        for claim, given in zip(request.claims, grants, strict=True):
            served.setdefault(claim.rules, []).append((claim, given))
        for rules, mine in served.items():
            kin = [card for card in cards if card.device.family in mine[0][0].families]
            total += rules.points(node, kin, [grant for _, grant in mine], request.node_policy)
        return self.sign * total

    def column(self, pool: Pool, request: Request) -> Callable[[Where], Column] | None:
        if any(claim.rules.scores_cards for claim in request.claims):
            return None
        return (lambda at: -pool.usage[at]) if self.sign < 0 else (lambda at: pool.usage[at])
