"""MetaX's rules: who may share a card, which cards to take, and what a node is worth by them.

Shared cards (sGPU)

    QoS     an idle card takes any policy, a pod with 100 cores too (it needs an idle card anyway); else the card's
            policy must be empty or the pod's
    class   an idle card takes any; one with online or offline pods only such, and no offline ones beside online ones
    zones   cards taken whole are picked, and where the pod wants it nodes scored, by link zones (`metax_links`)
    online  cards with fewest online pods first, then fewest offline ones; those with offline pods only come last
            score = -100 offline on such a card, else -20 online - 2 offline
    Both scores count +10000 under binpack and -10000 under spread, whose best node is the one with the lowest score.

Whole cards are picked, and nodes scored, by the links that are gained and lost, which outweighs how full nodes are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from subak.dialects.metax_links import best_cards, by_zones, node_points, zone_score
from subak.model.card import CardState
from subak.model.device import FULL_CORES
from subak.model.node import Node
from subak.model.placement import Charge, Grant
from subak.model.reason import Reason
from subak.model.request import SPREAD
from subak.model.rules import Rules

APP_CLASSES = (ONLINE, OFFLINE) = ("online", "offline")

POINT = 10**5
"""One point of HAMi's node score, in millionths of use."""

DECISIVE = 10_000
"""Points: makes zones and online pods outweigh how full the nodes are."""

LINKED = 1 << 22
"""More than the use of any node: the links of whole cards decide first."""


@dataclass(frozen=True, slots=True)
class Shared(Rules):
    """sGPU.  A pod has a QoS policy unless it is online, and may have an application class.

    `zones` is for cards taken whole: link zones pick them.  With `aware` they also decide between nodes.
    """

    unhealthy = Reason.CARD_UNHEALTHY

    qos: str | None = None
    app_class: str = ""
    zones: bool = False
    aware: bool = False

    @property
    def online(self) -> bool:
        """Online pods take cores as they need them, and have no QoS policy."""
        return self.app_class == ONLINE

    @property
    def tag(self) -> tuple[str, str]:
        return (self.qos or "", self.app_class)

    @property
    def counts_cores(self) -> bool:
        return not self.online

    @property
    def scores_cards(self) -> bool:
        return self.online or (self.zones and self.aware)

    def refuse(self, card: CardState, cores: int) -> Reason | None:
        if not class_fits(self.app_class, classes(card)):
            return Reason.CARD_APP_CLASS_MISMATCH
        if self.online or not card.tenants or qos_fits(self.qos, card_qos(card), card.used, cores):
            return None
        return Reason.CARD_QOS_POLICY_MISMATCH

    def in_columns(self, families: Collection[str]) -> bool:
        return False  # they do not know the neighbours

    def pick(self, passed: Sequence[CardState], count: int, node_policy: str) -> list[CardState]:
        if self.online:
            return online_order(passed)[:count]
        return by_zones(passed, count, lambda card: card.device.zone)

    def points(self, node: Node, cards: Sequence[CardState], grants: Sequence[Grant], node_policy: str) -> int:
        if not self.scores_cards:
            return 0
        return sum(weighted(self._raw(cards, grant), node_policy) for grant in grants) * POINT

    def _raw(self, cards: Sequence[CardState], grant: Grant) -> int:
        chosen = {share.id for share in grant.shares}
        if self.online:
            return sum(online_score(classes(card)) for card in cards if card.device.id in chosen)
        free = [card.device for card in cards if not card.used]
        return zone_score([each.zone for each in free], [each.zone for each in free if each.id in chosen])


@dataclass(frozen=True, slots=True)
class Whole(Rules):
    """Whole cards."""

    @property
    def scores_cards(self) -> bool:
        return True

    def pick(self, passed: Sequence[CardState], count: int, node_policy: str) -> list[CardState]:
        return best_cards(passed, count, node_policy)

    def points(self, node: Node, cards: Sequence[CardState], grants: Sequence[Grant], node_policy: str) -> int:
        free = [card.device for card in cards if not card.used]
        count = sum(len(grant.shares) for grant in grants)
        return node_points(node_policy, count, free, node.tables) * LINKED


def qos_fits(policy: str | None, card_policy: str, used: int, cores: int) -> bool:
    """Whether a pod of this QoS policy (None: online) may join a card that `used` others hold."""
    return policy is None or used == 0 or cores == FULL_CORES or card_policy in ("", policy)


def card_qos(card: CardState) -> str:
    """The QoS policy in force on a card.

    The register lags behind: it shows a new policy only after MetaX's plugin has made the sub-device.  What the
    card's tenants were placed with is true at once and stays true, so that it beats the register.
    """
    brought = [policy for charge in card.tenants.values() if (policy := _brought(charge)) is not None]
    return max(brought, default=card.device.qos)


def _brought(charge: Charge) -> str | None:
    """The policy that a tenant gives a card; None if it has none, as online pods and those of other dialects."""
    if charge.shares == 1 and charge.cores == FULL_CORES:  # the whole card, not two halves of it
        return ""
    return charge.tag[0] or None


def class_fits(app_class: str, tenants: Iterable[str]) -> bool:
    """Whether a pod of this application class may join pods of those classes."""
    classes = set(tenants)
    if not classes:
        return True
    if classes == {""}:
        return not app_class
    return bool(app_class) and not (app_class == OFFLINE and ONLINE in classes)


def weighted(raw: int, node_policy: str) -> int:
    """A zone or online score as it enters a node's total: the better node wins under either policy."""
    return -DECISIVE * raw if node_policy == SPREAD else DECISIVE * raw


def online_rank(classes: Iterable[str]) -> tuple[bool, int, int]:
    """Sort key of a card, by the classes of its tenants, for an online pod: the lowest is best."""
    found = Counter(classes)
    return found[OFFLINE] > 0 and found[ONLINE] == 0, found[ONLINE], found[OFFLINE]


def online_order(cards: Iterable[CardState]) -> list[CardState]:
    """The cards in the order in which an online pod takes them; equal ones keep theirs."""
    return sorted(cards, key=lambda card: online_rank(classes(card)))


def online_score(classes: Iterable[str]) -> int:
    """How well a card suits an online pod, by the classes of its tenants."""
    only_offline, online, offline = online_rank(classes)
    return -100 * offline if only_offline else -20 * online - 2 * offline


def classes(card: CardState) -> list[str]:
    """The application classes of a card's tenants."""
    return [charge.tag[1] for charge in card.tenants.values()]
