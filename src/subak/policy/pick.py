"""Which of the cards that fit: the first ones, or those that are wired together best.

Each pick is a `CardPick`: it takes the cards that passed (best first) and returns as many as the claim asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from subak.model.card import CardState
from subak.model.request import Claim, Pick
from subak.policy import partition, tree

Cards = Sequence[CardState]


def first(passed: Cards, claim: Claim, cards: Cards, node_policy: str) -> list[CardState]:
    """The first ones."""
    return list(passed[: claim.count])


def best_linked(passed: Cards, claim: Claim, cards: Cards, node_policy: str) -> list[CardState]:
    """Several cards: the set with the highest sum of pair scores.  One card: the one that others miss least."""
    if claim.count == 1:
        return [min(passed, key=lambda card: sum(_link(card, other) for other in passed))]
    sets = combinations(passed, claim.count)
    return list(max(sets, key=lambda cards: sum(_link(a, b) for a, b in combinations(cards, 2))))


def _link(one: CardState, other: CardState) -> int:
    return one.device.links.get(other.device.id, 0)


def by_tree(passed: Cards, claim: Claim, cards: Cards, node_policy: str) -> list[CardState]:
    """Koordinator: under the deepest of node, NUMA node and PCIe root that has enough."""
    return tree.by_tree(passed, cards, claim.count, claim.memory_percent < 100, claim.policy.scope)


def by_rules(passed: Cards, claim: Claim, cards: Cards, node_policy: str) -> list[CardState]:
    """As the claim's own rules say."""
    return claim.rules.pick(passed, claim.count, node_policy)


def others(stacks: Sequence[Sequence[CardState]], count: int) -> Iterator[tuple[CardState, ...]]:
    """Every choice of `count` of the passing cards, the first ones first: where to turn when the best pick blocks.

    Most stacks are one card.  One of MIG instances (`mig.stack`) is taken from its beginning, as far as it serves.
    """
    if all(len(stack) == 1 for stack in stacks):
        yield from combinations([stack[0] for stack in stacks], count)
    elif not count:
        yield ()
    else:
        for position, stack in enumerate(stacks):
            for taken in range(min(count, len(stack)), 0, -1):
                for rest in others(stacks[position + 1 :], count - taken):
                    yield (*stack[:taken], *rest)


def lie_together(chosen: Sequence[CardState], claim: Claim, cards: Sequence[CardState]) -> bool:
    """Whether a choice of cards keeps what Koordinator's claims demand: one vendor, one scope, one partition."""
    if claim.policy.pick != Pick.TREE and claim.policy.partition is None:
        return True
    return tree.within(chosen, claim.policy.scope) and partition.admits(chosen, claim, cards)
