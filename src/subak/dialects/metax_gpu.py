"""HAMi's dialect for whole MetaX cards, chosen by how they are wired.

`metax-tech.com/gpu: n` asks for n cards that nobody else uses.  Only their number is in the node's capacity; how they
are wired is in up to three annotations of MetaX's plugin, all of them optional:

    gpu.topology.zones    groups of cards; those of one `DirectLink` group are connected by MetaXLink
    gpu.topology.scores   {"2": 110, ...}  the best total of link scores that so many of the free cards reach
    gpu.topology.losses   {"2": 80, ...}   the least damage to the links of the free cards when so many are taken

The zones annotation is not documented.  We read what was seen of it and its likely variations: a list of groups, alone
or under `zones`, or an object with a group under each name; and a group's cards as a list or only as their number, in
the group itself or in its `resources`.  Groups that only tell their number take the next cards in order.

MetaX's plugin picks the cards when the container starts, so that the ids we write are for the ledger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from subak.dialects import (
    MOST_CARDS,
    Agent,
    Ask,
    Injection,
    Measure,
    Part,
    Patch,
    Published,
    QuotaUnit,
    Sight,
    Sighting,
    Source,
    annotation,
    hami,
)
from subak.dialects.amounts import Asked, asked, mentions, offers, published
from subak.dialects.config import Metax as Names
from subak.dialects.metax_links import LOSSES, SCORES, topology_tables
from subak.dialects.metax_rules import Whole
from subak.dialects.metax_sgpu import FAMILY
from subak.model import manifest
from subak.model.device import FULL_CORES, MIB, Device
from subak.model.node import Node
from subak.model.placement import Grant, Placement
from subak.model.reason import Refusal
from subak.model.request import Claim, Pick, Selection

WORD = "Metax-GPU"
TO_ALLOCATE = "hami.io/metax-gpu-devices-to-allocate"
ALLOCATED = "hami.io/metax-gpu-devices-allocated"
ZONES_KEY = "metax-tech.com/gpu.topology.zones"
SCORES_KEY = "metax-tech.com/gpu.topology.scores"
LOSSES_KEY = "metax-tech.com/gpu.topology.losses"

MEMORY_MIB = 65536
"""HAMi's figure for every card: the capacity does not tell the real one, and a whole card is taken anyway."""

LINK, SWITCH = ("DirectLink", 60), ("PCIeSwitch", 50)
"""Types of groups, MetaXLink and a common PCIe switch, with what MetaX's plugin counts for each."""

Cards = list[int | str] | int | str | None


class GroupResource(msgspec.Struct):
    """What a group has of one resource."""

    name: str = ""
    capacity: Cards = None
    allocatable: Cards = None


class Group(msgspec.Struct):
    """Cards that are wired to each other."""

    name: str = ""
    type: str = ""
    capacity: Cards = None
    allocatable: Cards = None
    resources: list[GroupResource] = []


class Wires(NamedTuple):
    """The link zone and the PCIe switch of a card, where somebody tells them."""

    zone: int | None = None
    pcie: str | None = None


def _worth(cards: Sequence[Device], free: Sequence[Device]) -> dict[str, str]:
    """What MetaX's plugin writes: which cards are free, and what those are worth together."""
    scores, losses = topology_tables([each for each in free if each.healthy])
    tables = {SCORES_KEY: annotation.encode(scores), LOSSES_KEY: annotation.encode(losses)}
    return {ZONES_KEY: zones(cards, free), **tables}


class MetaxGpu:
    """HAMi, MetaX, whole cards."""

    name = "hami-metax-gpu"
    families = frozenset({FAMILY})
    owned = hami.OWNED | {TO_ALLOCATE, ALLOCATED}
    recorded = frozenset({ALLOCATED})
    agent = Agent("hami", (FAMILY,), shares=1, modes=("",), label=hami.NODE, of_free=_worth)
    quota_units: Mapping[str, QuotaUnit] = {}

    def __init__(self, names: Names) -> None:
        self.names = names
        self.resources = frozenset({names.resource_count_name})
        self.measures = {names.resource_count_name: [Measure(Part.CARDS)]}

    def speaks(self, pod: manifest.Pod) -> bool:
        """Whether any container asks for whole cards."""
        return mentions(pod, self.resources)

    def admit(self, pod: manifest.Pod) -> Patch:
        """Nothing to fill in; a part of a card is refused."""
        hami.check_policies(pod.annotations)
        for ask in asked(pod):
            self.count(ask)
        return Patch()

    def ask(self, pod: manifest.Pod) -> Ask:
        """One claim per container, each for cards of its own."""
        return hami.ask_each(pod, self.amounts, self.claim)

    def claim(self, pod: manifest.Pod, position: int, amounts: hami.Amounts) -> Claim:
        """The claim of the container at `position`."""
        policy = replace(hami.card_policy(pod.annotations), pick=Pick.RULES)
        role = pod.roles[position]
        claim = hami.claim(self.name, FAMILY, position, role, selection=Selection(), policy=policy, **amounts)
        return replace(claim, idle=True, rules=Whole())

    def amounts(self, ask: Asked) -> hami.Amounts | None:
        """Whole cards; None if the container asks for none."""
        count = self.count(ask)
        return {"count": count, "memory_bytes": 0, "percent": 100, "cores": FULL_CORES} if count else None

    def count(self, ask: Asked) -> int:
        """The number of cards that a container asks for."""
        try:
            return ask(self.names.resource_count_name, "cards") or 0
        except Refusal as refusal:
            message = f"{refusal.message}; to share a card, ask for {self.names.resource_v_count_name}"
            raise Refusal(refusal.field, refusal.value, message) from None

    def sight(self, node: manifest.Node, device: manifest.Device | None) -> Sight:
        """As many cards as the capacity tells, wired as the annotations tell."""
        name = self.names.resource_count_name
        warnings: list[str] = []
        wiring = self._wiring(node, min(published(node.capacity, name), MOST_CARDS + 1), warnings)
        # Less allocatable than capacity means broken cards.  Nobody says which; so that their number is right, the
        # last ones count as broken.  A node that was switched to sharing has nothing allocatable, but a register.
        usable = published(node.allocatable, name)
        sightings = tuple(
            [
                Sighting(
                    FAMILY,
                    index,
                    memory_bytes=MEMORY_MIB * MIB,
                    cores=FULL_CORES,
                    slots=1,
                    zone=wires.zone,
                    pcie=wires.pcie,
                    supposed_healthy=index < usable,
                )
                for index, wires in enumerate(wiring)
            ]
        )
        tables = {
            table: figures
            for table, key in ((SCORES, SCORES_KEY), (LOSSES, LOSSES_KEY))
            if (figures := _figures(node, key, warnings))
        }
        return Sight(offers(node.allocatable, (name,)), Source.CAPACITY, sightings, tuple(warnings), tables)

    def _wiring(self, node: manifest.Node, count: int, warnings: list[str]) -> list[Wires]:
        """Zone and PCIe switch of each card, where the zones annotation tells them."""
        wiring = [Wires()] * count
        text = node.annotations.get(ZONES_KEY)
        if text is None:
            return wiring
        try:
            wired_cards = wired(text, self.names.resource_count_name)
        except ValueError as error:
            warnings.append(f"node {node.name}: annotation {ZONES_KEY}: {error}; it is ignored")
            return wiring
        for index, wires in wired_cards.items():
            if index < count:
                wiring[index] = wires
            else:
                warnings.append(
                    f"node {node.name}: annotation {ZONES_KEY} speaks of card {index}, but the node has {count} cards, "
                    f"numbered from 0; that card is ignored"
                )
        return wiring

    def publish(self, node: Node) -> Published:
        """The number of cards, and how they are wired."""
        cards = [each for each in node.devices if each.family == FAMILY]
        return Published.counted(cards, self._count, {ZONES_KEY: zones(cards, cards)} if cards else {})

    def _count(self, cards: Sequence[Device]) -> dict[str, str]:
        return {self.names.resource_count_name: str(len(cards))}

    def write(self, pod: manifest.Pod, placement: Placement, node: Node, now_ns: int) -> dict[str, str]:
        """HAMi's annotations."""
        return hami.write(pod, placement, now_ns, self.name, WORD, TO_ALLOCATE, ALLOCATED)

    def read(self, pod: manifest.Pod, node: Node) -> tuple[Grant, ...]:
        """The grants of HAMi's annotations."""
        if ALLOCATED not in pod.annotations:
            return ()
        return hami.read(pod, node, self.name, ALLOCATED, lambda ask: self.count(ask) > 0)

    def inject(self, pod: manifest.Pod, grant: Grant, position: int, node: Node) -> Injection:
        """Nothing: MetaX's plugin picks the cards and hands them to the container."""
        return Injection()


def zones(cards: Sequence[Device], free: Iterable[Device]) -> str:
    """The zones annotation of a node with these cards, of which some are free."""
    idle = {each.id for each in free}
    linked, switched = sorted({each.zone for each in cards} - {0}), sorted({each.pcie for each in cards} - {""})
    groups = [(f"gpu-group-{n - 1}", *LINK, [each for each in cards if each.zone == n]) for n in linked]
    groups += [(name, *SWITCH, [each for each in cards if each.pcie == name]) for name in switched]
    return annotation.encode(
        [
            {
                "name": name,
                "type": type,
                "topologyLinkWeight": weight,
                "capacity": [each.index for each in members],
                "allocatable": [each.index for each in members if each.healthy],
                "available": [each.index for each in members if each.healthy and each.id in idle],
            }
            for name, type, weight, members in groups
        ]
    )


def wired(text: str, resource: str) -> dict[int, Wires]:
    """The wires of the cards by index, from the zones annotation; zones are numbered from 1."""
    groups = _groups(text)
    linked = [group for group in groups if group.type.lower() == "directlink"]
    switched = [group for group in groups if "pci" in group.type.lower()]
    zone_of = {index: zone for zone, cards in enumerate(_members(linked, resource), 1) for index in cards}
    switch_of = {
        index: group.name
        for group, cards in zip(switched, _members(switched, resource), strict=True)
        for index in cards
    }
    return {index: Wires(zone_of.get(index), switch_of.get(index)) for index in {**zone_of, **switch_of}}


def _members(groups: list[Group], resource: str) -> list[list[int]]:
    """The cards of each group."""
    members: list[list[int]] = []
    following = 0
    for group in groups:
        members.append(_cards(group, resource, following))
        following += len(members[-1])
    return members


def _groups(text: str) -> list[Group]:
    if text.lstrip().startswith("["):
        return annotation.decode(text, list[Group])
    content = annotation.decode(text, dict[str, msgspec.Raw])
    if "zones" in content:
        return _groups(bytes(content["zones"]).decode())
    groups = annotation.decode(text, dict[str, Group])
    return [msgspec.structs.replace(group, name=group.name or name) for name, group in groups.items()]


def _cards(group: Group, resource: str, following: int) -> list[int]:
    """The indices of a group's cards; `following` is the first that no earlier group took."""
    lists = [group.capacity, group.allocatable]
    lists += [cards for each in group.resources if each.name == resource for cards in (each.capacity, each.allocatable)]
    cards = next((each for each in lists if each is not None), None)
    match cards:
        case None:
            raise ValueError(f"group {group.name!r} does not tell its cards")
        case list():
            # Members that are no numbers are UUIDs or bus addresses, which a capacity cannot be matched with.
            return [_number(card, following + position) for position, card in enumerate(cards)]
    count = _number(cards)
    if not 0 <= count <= MOST_CARDS:
        raise ValueError(f"group {group.name!r} has {cards!r} cards: need a whole number up to {MOST_CARDS:,}")
    return list(range(following, following + count))


def _number(text: int | str, otherwise: int = -1) -> int:
    return int(text) if isinstance(text, int) or text.isdecimal() else otherwise


def _figures(node: manifest.Node, key: str, warnings: list[str]) -> Mapping[int, int]:
    """A table of the vendor, by number of cards."""
    text = node.annotations.get(key)
    if text is None:
        return {}
    try:
        return annotation.decode(text, dict[int, int])
    except ValueError as error:
        warnings.append(f"node {node.name}: annotation {key}: {error}; it is ignored")
        return {}
