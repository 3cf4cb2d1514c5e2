"""Virtual functions of network cards: the free one with the lowest address, of a group that the user admits.

A function belongs to one pod at a time.  Whoever holds one is written down with the card's other tenants.
"""

from __future__ import annotations

from subak.model.card import CardState
from subak.model.placement import Function
from subak.model.request import Claim


def function_for(card: CardState, claim: Claim) -> Function | None:
    """The function that the card would give to one share of the claim; None if it has none left."""
    taken = {each.bus for charge in card.tenants.values() for each in charge.functions}
    lines = claim.function or ()
    free = (
        each
        for each in card.device.functions
        if each.bus not in taken and all(line.holds(each.labels) for line in lines)
    )
    first = min(free, key=lambda each: each.bus, default=None)
    return None if first is None else Function(first.bus, first.minor)
