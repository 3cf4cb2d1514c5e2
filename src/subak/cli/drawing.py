"""Cards as a table: how full each card is, and below it what each pod holds.

                                              MEMORY MiB   CORES  SLOTS
    a10
      0    A10        ████████████████····  19,901/23,028  55/100   3/10
           default/hami                             8,000      30      1
           default/volcano                          6,144       -      1
    gtx1080ti
      0-7  GTX 1080   8 idle ·············       0/11,178   0/100   0/10

A bar is as long as the fullest of memory, cores and slots, so a card that can take no more pods looks full, whatever
fills it.  Solid strokes are memory, lighter ones what goes beyond it.  Idle cards of the same kind share a line.  On a
terminal the bars use the width that is left; elsewhere the table has a fixed width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from subak.cli.cards import line, strokes, together, uses_of
from subak.dialects import product
from subak.model.card import CardState
from subak.model.device import MIB
from subak.model.node import Node
from subak.model.placement import Charge
from subak.node.usage import Use, Uses

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("MEMORY MiB", "CORES", "SLOTS")
USE_HEADINGS = ("USED MiB", "TIME %")
BAR, SHORTEST, LONGEST = 24, 6, 48
INDENT = "  "
NOTHING, UNKNOWN = "-", "?"


@dataclass(frozen=True, slots=True)
class Scene:
    """The cards of a node, or some of them."""

    node: Node
    cards: Sequence[CardState]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table: a node's name, one or several cards, or a tenant with what it holds."""

    label: str = ""
    name: str = ""
    gauge: str | CardState | None = None
    amounts: tuple[str, ...] = ()
    style: str = ""


def draw(console: Console, scenes: Iterable[Scene], uses: Uses | None = None, names: bool = True) -> None:
    """Draw the cards of these nodes; without `names`, the nodes' names are left out."""
    uses = uses or {}
    scenes = list(scenes)
    known = any(use for scene in scenes for card in scene.cards for use in uses_of(card, uses).values())
    rows: list[_Row] = []
    for scene in scenes:
        if names:
            rows.append(_Row(scene.node.name, style="bold"))
        rows += _rows(scene, uses if known else None)
    _print(console, rows, HEADINGS + USE_HEADINGS if known else HEADINGS)


def _rows(scene: Scene, uses: Uses | None) -> Iterable[_Row]:
    """The lines of a node's cards; idle cards that look the same are at the place of the first."""
    blocks: dict[tuple[str, ...], list[CardState]] = {}
    for card in scene.cards:
        shown = product.name(card.device, scene.node.labels), *_amounts(card)
        blocks.setdefault(shown if _idle(card) else (card.device.id,), []).append(card)
    for (name, *amounts), cards in blocks.items():
        if not amounts:
            yield from _card_rows(scene.node, cards[0], uses)
            continue
        word = "idle " if len(cards) == 1 else f"{len(cards)} idle "
        yield _Row(_ranges([card.device.index for card in cards]), name, word, tuple(amounts), "dim")


def _card_rows(node: Node, card: CardState, uses: Uses | None) -> Iterable[_Row]:
    used = uses_of(card, uses or {})
    amounts = _amounts(card)
    if uses is not None:
        amounts += _used(together(list(used.values())), bool(card.tenants), None)
    gauge: str | CardState = card
    if not card.device.usable:
        gauge = "cordoned " if card.device.healthy else "unhealthy "
    style = "" if card.device.usable else "red"
    yield _Row(str(card.device.index), product.name(card.device, node.labels), gauge, amounts, style)
    for key, charge in card.tenants.items():
        held = _held(charge)
        if uses is not None:
            held += _used(used[key], True, charge.cores)
        yield _Row("", key, None, held)


def _idle(card: CardState) -> bool:
    taken = card.used or card.memory_used or card.cores_used or card.tenants
    return card.device.usable and not taken


def _amounts(card: CardState) -> tuple[str, ...]:
    """What is taken of the card's total; for a card that takes no new pods only what is still held."""
    device = card.device
    taken = card.memory_used // MIB, card.cores_used, card.slots_used
    if not device.usable:
        return _said(taken)
    pairs = zip(taken, (device.memory_bytes // MIB, device.cores, device.slots), strict=True)
    return tuple(f"{used:,}/{total:,}" if total else NOTHING for used, total in pairs)


def _held(charge: Charge) -> tuple[str, ...]:
    return _said((charge.memory_bytes // MIB, charge.cores, charge.slots))


def _said(amounts: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"{each:,}" if each else NOTHING for each in amounts)


def _used(use: Use | None, taken: bool, cores: int | None) -> tuple[str, ...]:
    """What is used; time is not counted for tenants without a limit on cores."""
    if use is None:
        return (UNKNOWN, UNKNOWN) if taken else (NOTHING, NOTHING)
    time = UNKNOWN if use.time_percent is None else str(use.time_percent)
    return f"{use.memory_bytes // MIB:,}", NOTHING if cores == 0 else time


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as ranges: 0, 2-7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _print(console: Console, rows: Sequence[_Row], headings: Sequence[str]) -> None:
    cards = [row for row in rows if row.gauge is not None]
    labels = max((len(row.label) for row in cards), default=0)
    models = max((len(row.name) for row in cards), default=0)
    widths = [
        max(len(heading), *(len(row.amounts[column]) for row in rows if column < len(row.amounts)), 0)
        for column, heading in enumerate(headings)
    ]
    before = len(INDENT) + labels + 2
    length = _bar_length(console, before + models + 2 + sum(width + 2 for width in widths))
    tenants = max((len(row.name) for row in rows if row.amounts), default=0)
    span = max(models + 2 + length, 0 if console.is_terminal else tenants)
    if cards:
        line(console, (" " * (before + span) + _right(headings, widths), "dim"))
    for row in rows:
        if not row.amounts:
            line(console, (row.label, row.style))
            continue
        drawn = "" if row.gauge is None else _gauge(console, row.gauge, length)
        name = row.name if row.gauge is None else f"{row.name:<{models}}  {drawn}"
        for text in _beside(name, span, _right(row.amounts, widths)):
            line(console, (f"{INDENT}{row.label:<{labels}}  {text}", _style(row)))


def _bar_length(console: Console, others: int) -> int:
    """The width that the terminal leaves for bars."""
    return min(max(console.width - others, SHORTEST), LONGEST) if console.is_terminal else BAR


def _beside(name: str, span: int, amounts: str) -> Iterable[str]:
    """A name and amounts on one line, or on two if the name is too long."""
    room = span + len(amounts)
    if len(name) <= span or len(name) + 2 + len(amounts.strip()) <= room:
        return (name + amounts.strip().rjust(room - len(name)),)
    return name, amounts.rjust(room)


def _right(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=False))


def _gauge(console: Console, gauge: str | CardState, length: int) -> str:
    solid, light, free = strokes(console)
    if isinstance(gauge, str):
        return f"{gauge[:length]:{free if 'idle' in gauge else ' '}<{length}}"
    memory = _strokes(gauge.memory_used, gauge.device.memory_bytes, length)
    most = max(memory, *(_strokes(used, total, length) for used, total in _counted(gauge)))
    return (solid * memory + light * (most - memory)).ljust(length, free)


def _counted(card: CardState) -> tuple[tuple[int, int], tuple[int, int]]:
    return (card.cores_used, card.device.cores), (card.slots_used, card.device.slots)


def _strokes(used: int, total: int, length: int) -> int:
    """How many strokes a part has: at least one for any use, and all of them only for a full card."""
    if used <= 0 or total <= 0:
        return 0
    return length if used >= total else min(max(round(used / total * length), 1), length - 1)


def _style(row: _Row) -> str:
    if not isinstance(row.gauge, CardState):
        return row.style
    card = row.gauge
    taken = (card.memory_used, card.device.memory_bytes), *_counted(card)
    return "yellow" if any(used >= total > 0 for used, total in taken) else "green"
