"""What holds for a tenant on a card at the moment, decided from who works there.

    BLOCKED   a tenant of higher priority (a lower number) works on the card
    LIFTED    the tenant's policy is `default`, and nobody who would share the card with it works there

A blocked tenant uses no time, so it does not keep the share of a more important one in force.  A tenant whose work
nobody sees, such as one without our library, may be at work: it keeps shares in force, but it blocks nobody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Generic, TypeVar

from subak.dialects import isolation

Name = TypeVar("Name", bound=Hashable)


class Work(Enum):
    """Whether a tenant works on a card."""

    NONE = auto()
    SOME = auto()
    UNKNOWN = auto()


class Word(Flag):
    """What holds for a tenant on a card; the values are those of its state (`native/src`)."""

    NOTHING = 0
    LIFTED = 1
    BLOCKED = 2


@dataclass(frozen=True, slots=True)
class Party(Generic[Name]):
    """A tenant as far as it matters here: what it does on each of its cards, and its rules."""

    name: Name
    work: Mapping[str, Work]
    priority: int = isolation.USUAL
    policy: str = isolation.DEFAULT


def decide(parties: Iterable[Party[Name]]) -> dict[Name, dict[str, Word]]:
    """The words of all tenants of a node, by their names and cards."""
    everybody = list(parties)
    cards: dict[str, list[Party[Name]]] = {}
    for party in everybody:
        for card in party.work:
            cards.setdefault(card, []).append(party)
    return {party.name: {card: _word(party, card, cards[card]) for card in party.work} for party in everybody}


def _word(party: Party[Name], card: str, there: Iterable[Party[Name]]) -> Word:
    others = [each for each in there if each is not party]
    if any(each.work[card] is Work.SOME and each.priority < party.priority for each in others):
        return Word.BLOCKED
    alone = all(each.work[card] is Work.NONE or _yields(each, party, card) for each in others)
    return Word.LIFTED if alone and party.policy == isolation.DEFAULT else Word.NOTHING


def _yields(other: Party[Name], party: Party[Name], card: str) -> bool:
    """Whether the other one is blocked while this one works, as soon as that is seen."""
    seen = Work.UNKNOWN not in (party.work[card], other.work[card])
    return seen and other.priority > party.priority
