"""Cards as data for scripts, and the strokes of their bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from subak.cli.plain import plain
from subak.dialects import product
from subak.model.card import CardState
from subak.model.device import MIB
from subak.model.node import Node
from subak.node.usage import Use, Uses

if TYPE_CHECKING:
    from rich.console import Console


def terminal() -> Console:
    """Standard output for people.  No emoji: a device string may contain what looks like an emoji code."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, emoji=False)


def line(console: Console, *parts: str | tuple[str, str]) -> None:
    """Print one line of texts, some with a style, without markup: names and values may look like it."""
    from rich.text import Text

    console.print(
        Text.assemble(*(plain(part) if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts))
    )


def strokes(console: Console) -> tuple[str, str, str]:
    """The strokes of a bar on this terminal: for memory, for what fills the card beyond that, and for the free part."""
    return ("█", "▒", "·") if console.encoding.startswith("utf") else ("#", "=", ".")


def uses_of(card: CardState, uses: Uses) -> dict[str, Use | None]:
    """What each tenant of a card uses; None if unknown."""
    return {key: uses.get((card.device.id, key)) for key in card.tenants}


def used_card_data(node: Node, card: CardState, uses: Uses) -> dict[str, Any]:
    """`card_data` with the real use of the card and of each tenant; null if unknown."""
    data, used = card_data(node, card), uses_of(card, uses)
    for tenant in data["tenants"]:
        tenant["in_use"] = _use_data([used[tenant["pod"]]])
    return data | {"in_use": _use_data(list(used.values()))}


def together(uses: Sequence[Use | None]) -> Use | None:
    """What all of them use together; unknown if one of them is, or if there are none."""
    known = [use for use in uses if use is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(uses) else None


def _use_data(uses: Sequence[Use | None]) -> dict[str, int | None] | None:
    total = together(uses)
    if total is None:
        return None
    return {"memory_mib": total.memory_bytes // MIB, "time_percent": total.time_percent}


def card_data(node: Node, card: CardState) -> dict[str, Any]:
    """A card of a node as data for scripts."""
    device = card.device
    return {
        "index": device.index,
        "uuid": device.id,
        "vendor": device.family,
        "model": device.model or product.name(device, node.labels),
        "healthy": device.healthy,
        "memory_mib": device.memory_bytes // MIB,
        "memory_used_mib": card.memory_used // MIB,
        "cores": device.cores,
        "cores_used": card.cores_used,
        "slots": device.slots,
        "slots_used": card.slots_used,
        "tenants": [
            {"pod": key, "memory_mib": charge.memory_bytes // MIB, "cores": charge.cores}
            for key, charge in card.tenants.items()
        ],
    }
