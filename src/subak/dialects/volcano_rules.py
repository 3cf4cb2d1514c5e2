"""Volcano's own rule for vGPU cards: pods of one group that want to be apart never share a card."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from subak.model.card import OWN, CardState
from subak.model.reason import Reason
from subak.model.rules import Rules


@dataclass(frozen=True, slots=True)
class Apart(Rules):
    """A member of a group, `namespace/name`, that wants cards without other members of it.

    Its own containers may share a card.
    """

    group: str = ""

    @property
    def tag(self) -> tuple[str, str]:
        return ("pod group", self.group)

    def refuse(self, card: CardState, cores: int) -> Reason | None:
        members = any(charge.tag == self.tag for key, charge in card.tenants.items() if not key.startswith(OWN))
        return Reason.CARD_POD_GROUP_CONFLICT if members else None

    def in_columns(self, families: Collection[str]) -> bool:
        return False  # they do not know the neighbours
