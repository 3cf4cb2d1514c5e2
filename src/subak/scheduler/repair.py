"""Finds cards to which more was bound than they have, and chooses the pods that must go.

We never decide so.  But two schedulers may bind pods at the same time, and a binding that was sent before a lease was
lost may arrive after it.  The API server accepts both: it does not know about cards.

    a card of a bound pod below zero ──> suspected ── SETTLE ──> looked at ──> Evict, Warn, or nothing is wrong

Only bindings are evidence: pods that the server shows as bound, each with a record that names the card.  A pod without
a readable record counts on many cards and proves nothing.  Nor is anybody to blame if the card has become smaller, as
it has if one pod alone exceeds it.  Decision 14 states the rule.

Whoever must go is chosen by the objects alone, so that two schedulers choose the same.  The pods are counted again, the
worthiest first, and those that no longer fit go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from subak.model import manifest
from subak.model.device import Device
from subak.model.placement import Charge
from subak.scheduler.books import Books
from subak.scheduler.load import Load
from subak.scheduler.messages import Evict, Instruction, Warn
from subak.scheduler.record import Record, State
from subak.scheduler.story import Moment, Word

EVENT, REASON = "Overcommitted", "CardOvercommitted"
SETTLE = 2.0
"""A card must be overcommitted for so many seconds: what comes and goes with the order of events is over by then."""
AGAIN = 30.0
"""An evicted pod that is still there after so many seconds is evicted again."""
DOUBT = 5.0
"""A binding that we see so soon after a card became smaller may be older than that."""
MOST_PER_CYCLE = 32
MOST_NAMES = 3


def worth(pod: manifest.Pod) -> tuple[bool, bool, bool, int, str, str]:
    """The sort key of a pod: those that stay come first.

    Last are pods that are being deleted, then those that somebody has marked to go, that have not started, are less
    important, were bound later.
    """
    bound, marked = pod.condition("PodScheduled"), pod.condition(manifest.DISRUPTION_TARGET)
    return (
        pod.metadata.deletion_timestamp is not None,
        marked is not None and marked.status == "True",
        not pod.started,
        -(pod.spec.priority or 0),
        (bound and bound.since) or "",
        pod.metadata.uid,
    )


@dataclass(slots=True)
class Card:
    """A card to which more is bound than it has; `tenants` are the bound pods by key."""

    device: Device
    tenants: dict[str, Charge]
    excess: list[str]
    stay: Load = field(init=False)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stay = Load(self.device)

    def keep(self, key: str) -> None:
        """Count a pod that stays."""
        self.stay.add(self.tenants[key])
        self.names.append(key)

    def has_room(self, key: str) -> bool:
        """Whether a pod fits beside those that stay."""
        return self.stay.has_room(self.tenants[key])

    def __str__(self) -> str:
        return f"card {self.device.id} carries {' and '.join(self.excess)}"


class Repair:
    """Watches over the cards of all nodes.  Costs nothing while no card is overcommitted."""

    def __init__(self, books: Books, serves: Callable[[manifest.Pod], bool], began: Moment) -> None:
        self._books = books
        self._serves = serves
        self._began = began
        self._suspected: dict[str, None] = {}
        self._due: list[tuple[float, str]] = []
        self._settling: set[str] = set()
        self._shrunk: dict[str, Moment] = {}
        self._asked: dict[str, float] = {}
        self._warned: dict[str, str] = {}

    def suspect(self, nodes: Iterable[str]) -> None:
        """Bound pods may hold more of these nodes' cards than there is."""
        self._suspected.update(dict.fromkeys(nodes))

    def shrank(self, nodes: Iterable[str], moment: Moment) -> None:
        """Cards of these nodes are gone or have become smaller."""
        if moment is not self._began:  # until then, objects that describe one node come one after the other
            self._shrunk.update(dict.fromkeys(nodes, moment))

    def next_look(self) -> float | None:
        """When a suspected card is due; None if there is none."""
        return self._due[0][0] if self._due else None

    def look(self, now: float, moment: Moment) -> list[Instruction]:
        """Look at the cards that are due."""
        for node in self._suspected:
            if node not in self._settling:
                self._settling.add(node)
                heapq.heappush(self._due, (now + SETTLE, node))
        self._suspected = {}
        out: list[Instruction] = []
        for _ in range(MOST_PER_CYCLE):
            if not self._due or self._due[0][0] > now:
                break
            _, node = heapq.heappop(self._due)
            self._settling.discard(node)
            out += self._look_at(node, now, moment)
        return out

    def _look_at(self, node: str, now: float, moment: Moment) -> Iterator[Instruction]:
        cards = self._overcommitted(node)
        if not cards:
            self._warned.pop(node, None)
            return
        there = self._books.there(node)
        leaving = _leaving(cards, there, self._blameless(cards, there, node))
        foreign = [key for key in leaving if not self._serves(there[key].pod)]
        yield from self._warn(node, cards, leaving, foreign)
        for key, card in leaving.items():
            record = there[key]
            pod = record.pod
            if key in foreign or pod.metadata.deletion_timestamp is not None:
                continue
            if now < self._asked.get(pod.metadata.uid, 0.0):
                continue
            stays = f"{_named(card.names)} stay{'s' if len(card.names) == 1 else ''}"
            message = f"node {node}: {card}; {stays}"
            record.note(moment, Word.EVICTED, message)
            self._ask_again_later(pod, node, now)
            yield Evict(key, pod.metadata.uid, EVENT, REASON, message)

    def _ask_again_later(self, pod: manifest.Pod, node: str, now: float) -> None:
        self._asked = {uid: until for uid, until in self._asked.items() if until > now}
        self._asked[pod.metadata.uid] = now + AGAIN
        heapq.heappush(self._due, (now + AGAIN, node))

    def _overcommitted(self, name: str) -> list[Card]:
        """The node's cards to which more is bound than they have."""
        home, there = self._books.snapshot.home(name), self._books.there(name)
        if home is None:
            return []
        pool, at = home
        cards: list[Card] = []
        for device, tenants in zip(pool.nodes[at].devices, pool.tenants[at], strict=True):
            empty = Load(device)  # a pod that is too large by itself says that the card is another one now
            bound = {
                key: charge
                for key, charge in tenants.items()
                if key in there and _is_evidence(there[key]) and empty.has_room(charge)
            }
            if excess := Load(device, bound.values()).excess():
                cards.append(Card(device, bound, excess))
        return cards

    def _blameless(self, cards: list[Card], there: Mapping[str, Record], node: str) -> set[str]:
        """Pods that exceed a card by themselves, but may have fitted when they were bound."""
        found: set[str] = set()
        for card in cards:
            old = [key for key in card.tenants if self._may_have_fitted(there[key], node)]
            if Load(card.device, [card.tenants[key] for key in old]).excess():
                found.update(old)
        return found

    def _may_have_fitted(self, record: Record, node: str) -> bool:
        """Whether the pod was bound when its card may have been larger; if it has not started, only if we saw that."""
        shrunk, came = self._shrunk.get(node), record.came
        if shrunk is not None and shrunk.at is not None and (came.at or 0.0) <= shrunk.at + DOUBT:
            return True
        return came is self._began and record.pod.started

    def _warn(self, node: str, cards: list[Card], leaving: Mapping[str, Card], foreign: list[str]) -> Iterator[Warn]:
        """Tell an administrator what we do not repair, once."""
        held = " and ".join(map(str, cards))
        if foreign:
            text = f"node {node}: {held}: {_named(foreign)} should go, but belongs to another scheduler"
        elif not leaving:
            pods = sorted({key for card in cards for key in card.tenants})
            text = f"node {node}: {held}: it was larger when {_named(pods)} came, or may have been; nobody is evicted"
        else:
            return
        if self._warned.get(node) != text:
            self._warned[node] = text
            yield Warn(text)


def _leaving(cards: list[Card], there: Mapping[str, Record], blameless: set[str]) -> dict[str, Card]:
    """The pods that must go, each with a card on which it has no room; as few as the order allows."""
    tenants = {key for card in cards for key in card.tenants}
    leaving: dict[str, Card] = {}
    for key in sorted(tenants, key=lambda key: (key not in blameless, worth(there[key].pod))):
        mine = [card for card in cards if key in card.tenants]
        full = None if key in blameless else next((card for card in mine if not card.has_room(key)), None)
        if full is not None:
            leaving[key] = full
        else:
            for card in mine:
                card.keep(key)
    return leaving


def _is_evidence(record: Record) -> bool:
    """Whether the server shows the pod as bound, with the record that counts, which names its cards."""
    return record.state is State.HELD and record.known and record.carried == record.annotations


def _named(keys: list[str]) -> str:
    more = len(keys) - MOST_NAMES
    names = ", ".join(keys[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"pod {names}" if len(keys) == 1 else f"pods {names}"
