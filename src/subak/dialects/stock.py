"""One stock: several sources may describe the same cards of a node, and every card must be counted once.

Sources are believed in the order of `Source`: a vendor's register annotation, then a Device object, then bare capacity.
The first source that lists cards of a family decides which cards exist.  Others add what it does not say; cards are
matched by id, or by index where one side has no id.  A contradiction keeps the better source and becomes a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from subak.dialects import MOST_CARDS, Sight, Sighting, Source
from subak.model.device import FULL_CORES, GPU, MIB, MOST_CARD_BYTES, Device

MOST_SHARES = 1 << 24
"""Cores or slots of a card; Volcano has a slot per MiB."""


def one_stock(node: str, sights: Collection[Sight]) -> tuple[tuple[Device, ...], list[str]]:
    """The cards of a node, ordered by family and index, and what the sources disagree about."""
    warnings: list[str] = []
    families: dict[str, list[tuple[Source, list[Sighting]]]] = {}
    for sight in sorted(_united(sights), key=lambda each: each.source):
        by_family: dict[str, list[Sighting]] = {}
        for sighting in sight.sightings:
            by_family.setdefault(sighting.family, []).append(sighting)
        for family, seen in by_family.items():
            families.setdefault(family, []).append((sight.source, seen))
    devices: list[Device] = []
    hidden = {sight.hidden for sight in sights}
    for family, accounts in sorted(families.items()):
        if family in hidden and any(sighting.id is None for sighting in accounts[0][1]):
            warnings.append(f"node {node}: its {family} cards are not used until the register can be read")
            continue
        if len(accounts[0][1]) > MOST_CARDS:
            warnings.append(f"node {node}: more than {MOST_CARDS:,} {family} cards cannot be true; none is used")
            continue
        devices += _merge(node, family, accounts, warnings)
    return tuple(devices), warnings


def _united(sights: Iterable[Sight]) -> list[Sight]:
    """Dialects that speak of one model each describe together what others describe alone."""
    whole = [sight for sight in sights if not sight.only]
    parts = [sight for sight in sights if sight.only and sight.sightings]
    if not parts:
        return whole
    sightings = tuple(sighting for part in parts for sighting in part.sightings)
    return [Sight(source=min(part.source for part in parts), sightings=sightings), *whole]


def _merge(
    node: str, family: str, accounts: Sequence[tuple[Source, list[Sighting]]], warnings: list[str]
) -> list[Device]:
    trusted, cards = accounts[0][0], _listed(node, family, accounts[0][1], warnings)
    for source, seen in accounts[1:]:
        if len(seen) != len(cards):
            warnings.append(
                f"node {node}: {_named(trusted)} lists {len(cards)} {family} cards, {_named(source)} {len(seen)}; "
                f"the first is believed"
            )
        for order, sighting in enumerate(seen):
            position = _match(cards, sighting, order)
            if position is not None:
                cards[position] = _enriched(node, cards[position], sighting, source, warnings)
            elif sighting.id is not None:
                warnings.append(
                    f"node {node}: card {sighting.id} of {_named(source)} is unknown to {_named(trusted)}; ignored"
                )
    devices = sorted(map(_device, cards), key=lambda each: each.index)
    return [each for each in devices if _plausible(node, each, warnings)]


def _device(card: Sighting) -> Device:
    """The card that all sources together describe."""
    # In the order of the fields, one by one: names, or a loop over them, take five times as long, for every card.
    return Device(
        card.id or "",
        card.index or 0,
        card.family,
        card.model or "",
        card.memory_bytes or 0,
        FULL_CORES if card.cores is None else card.cores,
        100 if card.slots is None else card.slots,
        card.minor,
        card.kind or GPU,
        card.numa or 0,
        card.healthy is not False,
        card.cordoned is True,
        card.mode or "",
        card.qos or "",
        card.zone or 0,
        card.pcie or "",
        card.labels or {},
        card.links or {},
        card.extras or (),
        card.mig or (),
        card.functions or (),
        card.partitions,
    )


def _plausible(node: str, device: Device, warnings: list[str]) -> bool:
    """Whether a card can be as described; numbers beyond reason would spoil sums."""
    for name, most in (("memory_bytes", MOST_CARD_BYTES), ("cores", MOST_SHARES), ("slots", MOST_SHARES)):
        amount = getattr(device, name)
        if not 0 <= amount <= most:
            warnings.append(f"node {node}: card {device.id}: {name} of {amount:,} cannot be true; the card is left out")
            return False
    return True


def _listed(node: str, family: str, seen: Sequence[Sighting], warnings: list[str]) -> list[Sighting]:
    """The cards of the most trusted source, with an index and an id each."""
    seen = _once(node, seen, warnings)
    indices = [sighting.index for sighting in seen]
    # HAMi's seven-field register form has no index, so that all cards claim index 0: then their order counts.
    usable = None not in indices and len(set(indices)) == len(indices)
    cards: dict[str, Sighting] = {}
    for position, sighting in enumerate(seen):
        index = sighting.index if usable else position
        id = sighting.id or f"{node}-{family}-{index}"
        healthy = sighting.supposed_healthy if sighting.healthy is None else sighting.healthy
        if id != sighting.id or index != sighting.index or healthy is not sighting.healthy:
            sighting = msgspec.structs.replace(sighting, id=id, index=index, healthy=healthy)
        cards.setdefault(id, sighting)
    return list(cards.values())


def _once(node: str, seen: Sequence[Sighting], warnings: list[str]) -> list[Sighting]:
    """The cards without those that are listed again."""
    known: set[str] = set()
    cards: list[Sighting] = []
    for sighting in seen:
        if sighting.id in known:
            warnings.append(f"node {node}: card {sighting.id} is listed twice; the first entry counts")
            continue
        cards.append(sighting)
        if sighting.id:
            known.add(sighting.id)
    return cards


def _match(cards: Sequence[Sighting], sighting: Sighting, order: int) -> int | None:
    """The position of the card that a sighting means."""
    if sighting.id is not None:
        return next((position for position, each in enumerate(cards) if each.id == sighting.id), None)
    index = order if sighting.index is None else sighting.index
    return next((position for position, each in enumerate(cards) if each.index == index), None)


def _enriched(node: str, card: Sighting, other: Sighting, source: Source, warnings: list[str]) -> Sighting:
    """The card with what a less trusted source knows about it."""
    added = {
        name: fact
        for name in Device.__struct_fields__
        if (fact := getattr(other, name)) is not None and getattr(card, name) in (None, "")
    }
    if card.memory_bytes is not None and other.memory_bytes is not None:
        mine, theirs = card.memory_bytes // MIB, other.memory_bytes // MIB
        if mine == theirs:  # the same card, in MiB from one source and in bytes from the other
            added["memory_bytes"] = max(card.memory_bytes, other.memory_bytes)
        elif source is not Source.CAPACITY:  # Volcano's capacity is an average, see its sight
            warnings.append(
                f"node {node}: card {card.id} has {mine} MiB by one source and {theirs} MiB by "
                f"{_named(source)}; the first is believed"
            )
    if other.healthy is False:  # a card that any source calls broken is not used
        added["healthy"] = False
    if other.cordoned:
        added["cordoned"] = True
    return msgspec.structs.replace(card, **added) if added else card


def _named(source: Source) -> str:
    match source:
        case Source.REGISTER:
            return "the register annotation"
        case Source.DEVICE_OBJECT:
            return "the Device object"
        case Source.CAPACITY:
            return "the capacity"
