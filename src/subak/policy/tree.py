"""Cards that lie close together, and beside those already in use: Koordinator's tree Node > NUMA node > PCIe root.

    scopes that hold `count` fitting cards, best first by
      1. the deepest scope                                  (PCIe before NUMA node before Node)
      2. most scopes in use among it and its ancestors      (what is begun is filled up, whatever the strategy says)
      3. the best card in it, if the request is shared
      4. the lowest NUMA node, then PCIe root

From the winner come the lowest indices, or the best card if the request is shared.  The tree stands only where every
card's PCIe root is known, and it cannot place one shared request on several cards; then the order of the cards decides.
Cards of several vendors are never mixed in one claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from subak.model.card import CardState

LEVELS = {"": 0, "Node": 1, "NUMANode": 2, "PCIe": 3}

Path = tuple[int | str, ...]
"""Where a scope is: () for the node, (numa,), or (numa, pcie)."""


def by_tree(
    candidates: Sequence[CardState], cards: Sequence[CardState], count: int, shared: bool, scope: str = ""
) -> list[CardState]:
    """`count` of the candidates, which fit and come in order of preference; empty if there are too few.

    `cards` are all cards of the node that the claim could mean, fitting or not.  `scope` is the widest scope allowed.
    """
    for family in dict.fromkeys(card.device.family for card in candidates):
        fitting = [card for card in candidates if card.device.family == family]
        kin = [card for card in cards if card.device.family == family]
        picked = _in_tree(fitting, kin, count, shared, LEVELS[scope])
        if len(picked) == count:
            return picked
    return []


def within(cards: Sequence[CardState], scope: str) -> bool:
    """Whether the cards are of one vendor, and lie within one scope of that level or deeper."""
    level = LEVELS[scope]
    if level and any(card.device.pcie == "" for card in cards):
        return False
    return len({(card.device.family, _chain(card)[max(level - 1, 0)]) for card in cards}) <= 1


def _in_tree(
    fitting: Sequence[CardState], cards: Sequence[CardState], count: int, shared: bool, level: int
) -> list[CardState]:
    if any(card.device.pcie == "" for card in cards) or (shared and count > 1):
        return [] if level else list(fitting[:count])
    scopes: dict[Path, list[CardState]] = {}
    for card in fitting:
        for path in _chain(card):
            scopes.setdefault(path, []).append(card)
    in_use = {path for card in cards if card.used for path in _chain(card)}

    def preference(path: Path) -> tuple[int, int, int, Path]:
        begun = sum(path[:depth] in in_use for depth in range(len(path) + 1))
        best = fitting.index(scopes[path][0]) if shared else 0
        return -len(path), -begun, best, path

    allowed = [path for path, members in scopes.items() if len(members) >= count and len(path) + 1 >= level]
    if not allowed:
        return []
    members = scopes[min(allowed, key=preference)]
    return members[:1] if shared else sorted(members, key=lambda card: card.device.index)[:count]


def _chain(card: CardState) -> tuple[Path, ...]:
    """The scopes that hold a card, from the node down."""
    return (), (card.device.numa,), (card.device.numa, card.device.pcie)
