"""A vendor's own rules for its cards, beyond the amounts that everybody counts.

A dialect gives every claim its `Rules`: a small frozen value that says who may share a card, what comes with a share,
which of the fitting cards to take, and what a node is worth by them.  `policy` asks these questions and knows no
vendor; the answers stand beside the vendor's dialect.  Equal rules make equal claims, so they hold only what they read.

`Rules` itself is what holds for a claim without special rules: amounts decide.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from subak.model.card import CardState
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Grant, Share
from subak.model.reason import NodeRefusal, Reason


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a claim.  A vendor overrides what differs."""

    unhealthy: ClassVar[Reason] = Reason.CARD_NOT_HEALTH
    """The vendor's name for a card that does not work."""

    @property
    def tag(self) -> tuple[str, str]:
        """What neighbours on a card need to know of the claim: its `Grant.tag`."""
        return ("", "")

    @property
    def counts_cores(self) -> bool:
        """Whether a card without free cores is out for a claim that asks for none."""
        return True

    @property
    def scores_cards(self) -> bool:
        """Whether `points` must know the very cards: then every node that may fit is tried."""
        return False

    @property
    def node_key(self) -> Hashable:
        """All that `refuse_node` reads; claims with equal keys share its answers."""
        return ""

    def refuse_node(self, node: Node) -> NodeRefusal | None:
        """What keeps the claim off a node, by the node's description alone."""
        return None

    def refuse(self, card: CardState, cores: int) -> Reason | None:
        """Why a claim for so many cores may not join this card; asked before amounts are compared."""
        return None

    def refuse_last(self, card: CardState) -> Reason | None:
        """What the card lacks although all amounts are free."""
        return None

    def in_columns(self, families: Collection[str]) -> bool:
        """Whether columns tell all there is to tell about cards of these families: neither `refuse` says no."""
        return True

    def pick(self, passed: Sequence[CardState], count: int, node_policy: str) -> list[CardState]:
        """The cards to take of those that fit, which come best first; asked under `Pick.RULES` only."""
        return list(passed[:count])

    def points(self, node: Node, cards: Sequence[CardState], grants: Sequence[Grant], node_policy: str) -> int:
        """What `grants` of these cards add to the node's use, in millionths: all grants of claims with these rules.

        `cards` are those of the claims' families, as they were before.
        """
        return 0

    def complete(self, share: Share, card: CardState) -> Share:
        """The share with what comes with it besides amounts."""
        return share

    def widest(self, share: Share, device: Device) -> Share:
        """The share with all that may come with it, for a running pod whose record does not say."""
        return share


PLAIN = Rules()
