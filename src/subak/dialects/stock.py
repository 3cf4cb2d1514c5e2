"""One stock: several sources may describe the same cards of a node, and every card must be counted once.

Sources are believed in the order of `Source`: a vendor's register annotation, then a Device object, then bare capacity.
The first source that lists cards of a family decides which cards exist.  Others add what it does not say; cards are
matched by id, or by index where one side has no id.  A contradiction keeps the better source and becomes a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from subak.dialects import MOST_CARDS, Sight, Sighting, Source
from subak.model.device import MIB, MOST_CARD_BYTES, Device

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
    trusted, cards = accounts[0][0], _facts(node, family, accounts[0][1], warnings)
    for source, seen in accounts[1:]:
        if len(seen) != len(cards):
            warnings.append(
                f"node {node}: {_named(trusted)} lists {len(cards)} {family} cards, {_named(source)} {len(seen)}; "
                f"the first is believed"
            )
        for position, sighting in enumerate(seen):
            known = _match(cards, sighting, position)
            if known is None:
                if sighting.id is not None:
                    warnings.append(
                        f"node {node}: card {sighting.id} of {_named(source)} is unknown to {_named(trusted)}; ignored"
                    )
            else:
                _enrich(node, known, sighting, source, warnings)
    devices = [Device(**facts) for facts in sorted(cards, key=lambda facts: int(facts["index"]))]
    return [each for each in devices if _plausible(node, each, warnings)]


def _plausible(node: str, device: Device, warnings: list[str]) -> bool:
    """Whether a card can be as described; numbers beyond reason would spoil sums."""
    for name, most in (("memory_bytes", MOST_CARD_BYTES), ("cores", MOST_SHARES), ("slots", MOST_SHARES)):
        amount = getattr(device, name)
        if not 0 <= amount <= most:
            warnings.append(f"node {node}: card {device.id}: {name} of {amount:,} cannot be true; the card is left out")
            return False
    return True


def _facts(node: str, family: str, seen: Sequence[Sighting], warnings: list[str]) -> list[dict[str, Any]]:
    """The cards of the most trusted source, with an index and an id each."""
    seen = _once(node, seen, warnings)
    indices = [sighting.index for sighting in seen]
    # HAMi's seven-field register form has no index, so that all cards claim index 0: then their order counts.
    usable = None not in indices and len(set(indices)) == len(indices)
    cards: dict[str, dict[str, Any]] = {}
    for position, sighting in enumerate(seen):
        index = sighting.index if usable else position
        id = sighting.id or f"{node}-{family}-{index}"
        told = {**sighting.supposed, **sighting.facts}
        cards.setdefault(id, {**told, "id": id, "index": index, "family": family})
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


def _match(cards: list[dict[str, Any]], sighting: Sighting, position: int) -> dict[str, Any] | None:
    if sighting.id is not None:
        for facts in cards:
            if facts["id"] == sighting.id:
                return facts
        return None
    index = position if sighting.index is None else sighting.index
    return next((facts for facts in cards if facts["index"] == index), None)


def _enrich(node: str, facts: dict[str, Any], sighting: Sighting, source: Source, warnings: list[str]) -> None:
    """Add what a less trusted source knows about a card."""
    for name, value in sighting.facts.items():
        mine = facts.get(name)
        if name == "memory_bytes" and mine is not None:
            if mine // MIB == value // MIB:
                facts[name] = max(mine, value)  # the same card, told in MiB by one and in bytes by the other
            elif source is not Source.CAPACITY:  # Volcano's capacity is an average, see its sight
                warnings.append(
                    f"node {node}: card {facts['id']} has {mine // MIB} MiB by one source and {value // MIB} MiB by "
                    f"{_named(source)}; the first is believed"
                )
        elif name == "healthy":
            facts[name] = mine is not False and value  # a card that any source calls broken is not used
        elif name == "cordoned":
            facts[name] = bool(mine) or value
        elif mine is None or mine == "":
            facts[name] = value


def _named(source: Source) -> str:
    match source:
        case Source.REGISTER:
            return "the register annotation"
        case Source.DEVICE_OBJECT:
            return "the Device object"
        case Source.CAPACITY:
            return "the capacity"
