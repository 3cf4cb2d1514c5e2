"""Amounts in words: `40 GiB of NVIDIA memory`."""

from __future__ import annotations

from subak.batch.capacity import card_part
from subak.dialects import Part
from subak.dialects.vendor import vendor
from subak.model.device import MIB

GIB = 1024 * MIB


def called(name: str) -> str:
    """What people call a dimension."""
    found = card_part(name)
    if found is None:
        return name
    family, part = found
    title = vendor(family).title or family
    return f"whole {title} cards" if part is Part.CARDS else f"{title} {part.value}"


def figure(name: str, amount: float) -> str:
    """An amount in the unit that people expect."""
    found = card_part(name)
    if name == "cpu":
        return f"{amount / 1000:,.10g}"
    if name in ("memory", "ephemeral-storage") or (found is not None and found[1] is Part.MEMORY):
        return in_bytes(amount)
    return f"{amount:,.10g}"


def in_bytes(amount: float) -> str:
    """Bytes as GiB, or as MiB where that is less than one."""
    size, unit = (GIB, "GiB") if abs(amount) >= GIB else (MIB, "MiB")
    return f"{round(amount / size, 1):,.10g} {unit}"


def words(name: str, amount: float) -> str:
    """The amount, and what it is of: `40 GiB of NVIDIA memory`, `3 whole NVIDIA cards`."""
    text, what = figure(name, amount), called(name)
    if text.endswith("iB"):
        return f"{text} of {what}"
    return f"{text} {what.removesuffix('s') if text == '1' else what}"
