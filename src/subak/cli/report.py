"""What the commands print: the stable JSON form, and text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click
import yaml

from subak.cli.queue import Outcome, Pending, Placed
from subak.model.device import MIB
from subak.snapshot.card import CardState
from subak.snapshot.cluster import Snapshot

if TYPE_CHECKING:
    from rich.console import Console

BAR = 24


def as_data(outcome: Outcome) -> dict[str, Any]:
    """The outcome in the form that scripts rely on."""
    return {
        "placed": [_placed(each) for each in outcome.placed],
        "pending": [_pending(each) for each in outcome.pending],
        "rejected": [
            {
                "namespace": each.namespace,
                "name": each.name,
                "field": each.field,
                "value": each.value,
                "message": each.message,
            }
            for each in outcome.rejected
        ],
    }


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "namespace": pending.pod.namespace,
        "name": pending.pod.name,
        "message": pending.message,
        "reasons": pending.reasons,
    }


def _placed(placed: Placed) -> dict[str, Any]:
    return {
        "namespace": placed.pod.namespace,
        "name": placed.pod.name,
        "node": placed.placement.node,
        "annotations": placed.annotations,
        "containers": [
            {
                "name": container.name,
                "cards": [
                    {
                        "uuid": share.id,
                        "index": share.index,
                        "memory_mib": share.memory_bytes // MIB,
                        "cores": share.cores,
                    }
                    for grant in placed.placement.grants
                    if position in grant.containers
                    for share in grant.shares
                ],
                "env": injection.env,
                "mounts": [
                    {"source": each.source, "destination": each.destination, "read_only": each.read_only}
                    for each in injection.mounts
                ],
            }
            for position, (container, injection) in enumerate(
                zip(placed.pod.containers, placed.injections, strict=True)
            )
        ],
    }


def emit(data: dict[str, Any], form: str) -> None:
    """Print data as JSON or YAML."""
    if form == "yaml":
        click.echo(yaml.safe_dump(data, sort_keys=False), nl=False)
    else:
        click.echo(json.dumps(data, indent=2))


def complain(errors: Iterable[str], warnings: Iterable[str] = (), notes: Iterable[str] = ()) -> None:
    """Errors, warnings and notes, on standard error."""
    for word, lines in (("error", errors), ("warning", warnings), ("note", notes)):
        for line in lines:
            click.echo(f"{word}: {line}", err=True)


def show(outcome: Outcome, snapshot: Snapshot, wide: bool) -> None:
    """The outcome for people: where each pod went, what it got, and the cards with their tenants."""
    from rich.console import Console

    # No emoji: a device string may hold what looks like the code of one.
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    for placed in outcome.placed:
        _show_placed(console, placed, wide)
    for pending in outcome.pending:
        _line(console, (pending.pod.key, "yellow"), f" waits: {pending.message}")
    for rejected in outcome.rejected:
        _line(console, (f"{rejected.namespace}/{rejected.name}", "red"), f" rejected: {rejected.message}")
        _line(console, f"    {rejected.field} = {rejected.value!r}")
    show_cards(console, snapshot, {placed.placement.node for placed in outcome.placed})


def _line(console: Console, *parts: str | tuple[str, str]) -> None:
    """One line of texts and texts with a style; as they are, since names and values may look like markup."""
    from rich.text import Text

    console.print(Text.assemble(*parts))


def _show_placed(console: Console, placed: Placed, wide: bool) -> None:
    _line(console, (placed.pod.key, "green"), " -> ", (placed.placement.node, "bold"))
    for entry in _placed(placed)["containers"]:
        cards = ", ".join(
            f"card {card['index']} {card['memory_mib']:,} MiB {card['cores']} cores" for card in entry["cards"]
        )
        _line(console, f"    {entry['name']}: {cards or 'no card'}")
        for name, value in entry["env"].items():
            _line(console, (f"        {name}={value}", "dim"))
        if wide:
            for mount in entry["mounts"]:
                access = "ro" if mount["read_only"] else "rw"
                _line(console, (f"        {mount['source']} on {mount['destination']} ({access})", "dim"))
    for name, value in placed.annotations.items():
        _line(console, (f"    {name}: {value}", "dim"))


def show_cards(console: Console, snapshot: Snapshot, nodes: Iterable[str]) -> None:
    """Every card of these nodes as a bar of its memory, with those who hold a part of it."""
    full, free = ("█", "·") if console.encoding.startswith("utf") else ("#", ".")
    for name in sorted(nodes):
        _line(console, "")
        _line(console, (name, "bold"))
        for card in snapshot.cards(name):
            _line(console, "  " + card_line(card, full, free))


def card_line(card: CardState, full: str, free: str) -> str:
    """One card: index, model, how much of its memory is taken, and by whom."""
    device = card.device
    share = card.memory_used / device.memory_bytes if device.memory_bytes else 0
    filled = max(min(BAR, round(share * BAR)), 1 if card.memory_used else 0)
    holders = ", ".join(f"{key} {charge.memory_bytes // MIB:,}" for key, charge in card.tenants.items())
    amount = f"{card.memory_used // MIB:>7,} of {device.memory_bytes // MIB:>7,} MiB"
    bar = (full * filled).ljust(BAR, free)
    return f"{device.index:>2} {device.model or device.family:<16} {bar} {amount}  {holders}".rstrip()
