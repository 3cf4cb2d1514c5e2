"""Cards drawn as bars, with those who hold a part of them, and what these use where that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from subak.model.device import MIB
from subak.model.placement import Charge
from subak.node.usage import Use, Uses
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
        show_node(console, name, snapshot.cards(name))


def show_node(console: Console, name: str, cards: Sequence[CardState], uses: Uses | None = None) -> None:
    """One node with its cards."""
    line(console, "")
    line(console, (name, "bold"))
    for text in card_lines(cards, *strokes(console), uses or {}):
        line(console, "  " + text)


def strokes(console: Console) -> tuple[str, str]:
    """What a full and a free part of a bar look like on this terminal."""
    return ("█", "·") if console.encoding.startswith("utf") else ("#", ".")


def card_lines(cards: Sequence[CardState], full: str, free: str, uses: Uses | None = None) -> list[str]:
    """A line a card: index, model, how much of its memory is taken, and by whom."""
    models = [card.device.model or card.device.family for card in cards]
    width = max(map(len, models), default=0)
    return [
        _card_line(card, model.ljust(max(width, 16)), full, free, uses or {})
        for card, model in zip(cards, models, strict=True)
    ]


def _card_line(card: CardState, model: str, full: str, free: str, uses: Uses) -> str:
    device = card.device
    told = _uses(card, uses)
    known = any(told.values())  # else nobody here tells, and it need not be said of everyone
    holders = ", ".join(
        f"{key} {charge.memory_bytes // MIB:,}{f' ({_said(charge, told[key])})' if known else ''}"
        for key, charge in card.tenants.items()
    )
    amount = f"{card.memory_used // MIB:>7,} of {device.memory_bytes // MIB:>7,} MiB"
    drawn = bar(card.memory_used, device.memory_bytes, full, free)
    return f"{device.index:>2} {model} {drawn} {amount}  {holders}".rstrip()


def _uses(card: CardState, uses: Uses) -> dict[str, Use | None]:
    """What each tenant of a card uses; None where nobody knows."""
    return {key: uses.get((card.device.id, key)) for key in card.tenants}


def _said(booked: Charge, use: Use | None) -> str:
    if use is None:
        return "use unknown"
    memory = f"uses {use.memory_bytes // MIB:,}"
    if not booked.cores:
        return memory
    percent = "unknown" if use.time_percent is None else use.time_percent
    return f"{memory}, time {percent} of {booked.cores} %"


def bar(used: int, total: int, full: str, free: str, width: int = BAR) -> str:
    """How much is used; a little is never drawn as nothing."""
    filled = min(width, round(used / total * width)) if total else 0
    return (full * max(filled, 1 if used else 0)).ljust(width, free)


def used_card_data(card: CardState, uses: Uses) -> dict[str, Any]:
    """The same with what is really used, of the card and by each tenant; null is unknown."""
    data, told = card_data(card), _uses(card, uses)
    for tenant in data["tenants"]:
        tenant["in_use"] = _use_data([told[tenant["pod"]]])
    return data | {"in_use": _use_data(list(told.values()))}


def _use_data(uses: Sequence[Use | None]) -> dict[str, int | None] | None:
    """All of them together; unknown if one of them is, or if there is nobody of whom one could know."""
    known = [use for use in uses if use is not None]
    if not known or len(known) < len(uses):
        return None
    total = sum(known[1:], known[0])
    return {"memory_mib": total.memory_bytes // MIB, "time_percent": total.time_percent}


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
        "slots_used": card.slots_used,
        "tenants": [
            {"pod": key, "memory_mib": charge.memory_bytes // MIB, "cores": charge.cores}
            for key, charge in card.tenants.items()
        ],
    }
