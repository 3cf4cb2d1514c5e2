"""Cards drawn as bars, with those who hold a part of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from subak.model.device import MIB
from subak.snapshot.card import CardState
from subak.snapshot.cluster import Snapshot

if TYPE_CHECKING:
    from rich.console import Console

BAR = 24


def terminal() -> Console:
    """Where people read.  No emoji: a device string may hold what looks like the code of one."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, emoji=False)


def line(console: Console, *parts: str | tuple[str, str]) -> None:
    """One line of texts and texts with a style; as they are, since names and values may look like markup."""
    from rich.text import Text

    console.print(Text.assemble(*parts))


def show_cards(console: Console, snapshot: Snapshot, nodes: Iterable[str]) -> None:
    """Every card of these nodes as a bar of its memory, with those who hold a part of it."""
    for name in sorted(nodes):
        line(console, "")
        line(console, (name, "bold"))
        for text in card_lines(snapshot.cards(name), *strokes(console)):
            line(console, "  " + text)


def strokes(console: Console) -> tuple[str, str]:
    """What a full and a free part of a bar look like on this terminal."""
    return ("█", "·") if console.encoding.startswith("utf") else ("#", ".")


def card_lines(cards: Sequence[CardState], full: str, free: str) -> list[str]:
    """A line a card: index, model, how much of its memory is taken, and by whom."""
    models = [card.device.model or card.device.family for card in cards]
    width = max(map(len, models), default=0)
    return [
        _card_line(card, model.ljust(max(width, 16)), full, free) for card, model in zip(cards, models, strict=True)
    ]


def _card_line(card: CardState, model: str, full: str, free: str) -> str:
    device = card.device
    holders = ", ".join(f"{key} {charge.memory_bytes // MIB:,}" for key, charge in card.tenants.items())
    amount = f"{card.memory_used // MIB:>7,} of {device.memory_bytes // MIB:>7,} MiB"
    drawn = bar(card.memory_used, device.memory_bytes, full, free)
    return f"{device.index:>2} {model} {drawn} {amount}  {holders}".rstrip()


def bar(used: int, total: int, full: str, free: str, width: int = BAR) -> str:
    """How much is used; a little is never drawn as nothing."""
    filled = min(width, round(used / total * width)) if total else 0
    return (full * max(filled, 1 if used else 0)).ljust(width, free)


def card_data(card: CardState) -> dict[str, Any]:
    """A card in the form that scripts rely on."""
    device = card.device
    return {
        "index": device.index,
        "uuid": device.id,
        "vendor": device.family,
        "model": device.model,
        "healthy": device.healthy,
        "memory_mib": device.memory_bytes // MIB,
        "memory_used_mib": card.memory_used // MIB,
        "cores": device.cores,
        "cores_used": card.cores_used,
        "slots": device.slots,
        "slots_used": card.used,
        "tenants": [
            {"pod": key, "memory_mib": charge.memory_bytes // MIB, "cores": charge.cores}
            for key, charge in card.tenants.items()
        ],
    }
