"""The cards of a described node: the fields under `cards`, see `profiles`."""

from __future__ import annotations

import uuid

import msgspec

from subak.dialects import MOST_CARDS, Dialect, Source
from subak.dialects.vendor import WHOLE, vendor
from subak.local.hardware.description import Fields
from subak.model.device import MIB, MOST_CARD_BYTES, Device

FIELDS = ("vendor", "model", "count", "memory", "shares", "mode", "numa", "switches", "links", "unhealthy")

LINKED, SWITCHED, SAME_CPU, CROSS_CPU = 100, 50, 20, 10
"""How HAMi's plugin scores two NVIDIA cards: an NVLink adds to what the way over PCIe is worth."""

_IDS = uuid.UUID("5b4f6a0e-0f6c-4c55-9a3e-2d1b7c9e4a60")


def mode(fields: Fields) -> str:
    """How the cards are given out."""
    modes = vendor(fields["vendor"]).modes
    if len(modes) > 1:
        return fields.one_of("mode", modes, modes[0])
    if "mode" in fields:
        raise fields.wrong("mode", fields["mode"], "is for metax cards only: remove it")
    return modes[0]


def described(fields: Fields, speaks: tuple[Dialect, ...]) -> tuple[Device, ...]:
    """The cards, still without ids and links, which depend on the node's name."""
    family, count = fields["vendor"], fields.whole("count", MOST_CARDS, 1)
    numa = _of_each(fields.groups("numa", count), [0] * count)
    alone = [MOST_CARDS + index for index in range(count)]
    switches = _of_each(fields.groups("switches", count), alone) if "switches" in fields else numa
    zones = _of_each(fields.groups("links", count), [-1] * count)
    memory_bytes, given, broken = _memory(fields), mode(fields), _broken(fields, count)
    alike = Device(
        id="",
        index=0,
        family=family,
        model=_model(fields),
        memory_bytes=memory_bytes,
        cores=vendor(family).cores,
        slots=_shares(fields, speaks) or memory_bytes // MIB,
        mode="" if given == WHOLE else given,
    )
    return tuple(
        msgspec.structs.replace(
            alike,
            index=index,
            minor=index,
            numa=numa[index],
            pcie=f"pci{switches[index]:04x}:3a",
            zone=zones[index] + 1,
            healthy=index not in broken,
        )
        for index in range(count)
    )


def _broken(fields: Fields, count: int) -> list[int]:
    broken = fields.indices("unhealthy", count)
    last = list(range(count - len(broken), count))
    if mode(fields) == WHOLE and sorted(broken) != last:
        problem = (
            f"must be {last}: MetaX's plugin tells only how many cards are broken, and the last ones count as such"
        )
        raise fields.wrong("unhealthy", broken, problem)
    return broken


def _of_each(groups: list[list[int]], otherwise: list[int]) -> list[int]:
    """The number of each card's group."""
    numbers = {index: number for number, group in enumerate(groups) for index in group}
    return [numbers.get(index, default) for index, default in enumerate(otherwise)]


def _model(fields: Fields) -> str:
    """The model; NVIDIA's as HAMi's plugin writes it, from which Koordinator's agent cuts the vendor's name again."""
    model, brand = fields["model"] or "", vendor(fields["vendor"]).brand
    return f"{brand}-{model}" if brand and model and not model.startswith(brand) else model


def _memory(fields: Fields) -> int:
    made_by = vendor(fields["vendor"])
    block = made_by.block_mib
    memory = fields.quantity("memory", "23040Mi")
    size = int(memory.value)
    if memory.value != size or size % (block * MIB) or size > MOST_CARD_BYTES:
        unit = "MiB" if block == 1 else f"blocks of {block} MiB"
        raise fields.wrong("memory", fields["memory"], f"must be a whole number of {unit} up to 16Ti, such as 24Gi")
    if mode(fields) == WHOLE and size != made_by.whole_mib * MIB:
        raise fields.wrong("memory", fields["memory"], "must be 64Gi: MetaX's plugin does not tell the size of cards")
    return size


def _shares(fields: Fields, speaks: tuple[Dialect, ...]) -> int:
    """How many containers may have a part of a card, by the agent that is believed first."""
    first = min((each.agent for each in speaks), key=lambda each: (each.source, -each.shares))
    if first.source is Source.REGISTER:
        return fields.whole("shares", MOST_CARDS, first.shares)
    if "shares" in fields:
        raise fields.wrong("shares", fields["shares"], "cannot be chosen for these plugins: remove it")
    return first.shares


def named(devices: tuple[Device, ...], node: str, speaks: tuple[Dialect, ...]) -> tuple[Device, ...]:
    """The cards of one node: with UUIDs if an agent tells them, and NVIDIA's with what their connections are worth."""
    if all(each.agent.source is Source.CAPACITY for each in speaks):
        return tuple(msgspec.structs.replace(each, id=f"{node}-{each.family}-{each.index}") for each in devices)
    cards = tuple(msgspec.structs.replace(each, id=card_id(node, each.index)) for each in devices)
    if not vendor(cards[0].family).pairs:
        return cards
    wired = any(each.zone for each in cards)
    return tuple(
        msgspec.structs.replace(
            each,
            zone=0,
            links={other.id: _pair(each, other) for other in cards if other is not each} if wired else {},
        )
        for each in cards
    )


def card_id(node: str, index: int) -> str:
    """A UUID for a simulated card: the same in every run."""
    return f"GPU-{uuid.uuid5(_IDS, f'{node}/{index}')}"


def _pair(one: Device, other: Device) -> int:
    if one.numa != other.numa:
        path = CROSS_CPU
    else:
        path = SWITCHED if one.pcie == other.pcie else SAME_CPU
    return path + (LINKED if one.zone and one.zone == other.zone else 0)
