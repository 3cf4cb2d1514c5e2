"""The output of commands: data for scripts, and text for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from subak.cli.cards import line, terminal
from subak.cli.drawing import Scene, draw
from subak.cli.queue import Outcome, Pending, Placed
from subak.model.device import MIB
from subak.snapshot.cluster import Snapshot

if TYPE_CHECKING:
    from rich.console import Console


def as_data(outcome: Outcome) -> dict[str, Any]:
    """The outcome as data for scripts."""
    return {
        "placed": [_placed(each) for each in outcome.placed],
        "pending": [_pending(each) for each in outcome.pending],
        "rejected": [asdict(each) for each in outcome.rejected],
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
                "env": injection.variables(container.variables),
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


def show(outcome: Outcome, snapshot: Snapshot, wide: bool) -> None:
    """Print the outcome for people: where each pod went, what it got, and the cards with their tenants."""
    console = terminal()
    for placed in outcome.placed:
        _show_placed(console, placed, wide)
    for pending in outcome.pending:
        line(console, (pending.pod.key, "yellow"), f" waits: {pending.message}")
    for rejected in outcome.rejected:
        line(console, (f"{rejected.namespace}/{rejected.name}", "red"), f" rejected: {rejected.message}")
        line(console, f"    {rejected.field} = {rejected.value!r}")
    used = {placed.placement.node for placed in outcome.placed}
    if used:
        line(console, "")
        draw(console, [Scene(node, snapshot.cards(node.name)) for node in snapshot if node.name in used])


def _show_placed(console: Console, placed: Placed, wide: bool) -> None:
    line(console, (placed.pod.key, "green"), " -> ", (placed.placement.node, "bold"))
    for entry in _placed(placed)["containers"]:
        cards = ", ".join(
            f"card {card['index']} {card['memory_mib']:,} MiB {card['cores']} cores" for card in entry["cards"]
        )
        line(console, f"    {entry['name']}: {cards or 'no card'}")
        for name, value in entry["env"].items():
            line(console, (f"        {name}={value}", "dim"))
        if wide:
            for mount in entry["mounts"]:
                access = "ro" if mount["read_only"] else "rw"
                line(console, (f"        {mount['source']} on {mount['destination']} ({access})", "dim"))
    for name, value in placed.annotations.items():
        line(console, (f"    {name}: {value}", "dim"))
