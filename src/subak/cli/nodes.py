"""`subak nodes`: the nodes with their cards, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from subak.cli.columns import aligned
from subak.cli.connection import Connection, connected
from subak.cli.live import Picture, picture
from subak.cli.options import live_config_option, output_option
from subak.cli.say import emit
from subak.dialects import product
from subak.dialects.interpreter import Interpreter
from subak.model.card import CardState
from subak.model.device import GPU, MIB
from subak.model.node import Node


@click.command()
@live_config_option
@output_option
@connected
async def nodes(connection: Connection, output: str, device_config: Interpreter | None) -> None:
    """List the nodes: their cards, what is taken of them, and in which languages they can be asked for.

    \b
    Examples:
      subak nodes
      subak nodes -o json
    """
    now = await picture(connection.client, device_config)
    rows = [_data(now, node) for node in now.cluster.snapshot]
    if output in ("json", "yaml"):
        emit({"nodes": rows}, output)
        return
    table = [["NODE", "STATUS", "CARDS", "MEMORY MiB", "CORES", "PODS", "LANGUAGES"]]
    for row in rows:
        memory = f"{row['memory_used_mib']:,}/{row['memory_mib']:,}"
        cells = [row["name"], row["status"], row["cards"], memory, f"{row['cores_used']}/{row['cores']}"]
        table.append([*cells, str(row["pods"]), ", ".join(row["speaks"])])
    for line in aligned(table):
        click.echo(line)


def _data(now: Picture, node: Node) -> dict[str, Any]:
    cards = [card for card in now.cluster.snapshot.cards(node.name) if card.device.kind == GPU]
    models = Counter(product.name(card.device, node.labels) for card in cards)
    return {
        "name": node.name,
        "status": ("Ready" if node.ready else "NotReady") + (",SchedulingDisabled" if node.unschedulable else ""),
        "cards": ", ".join([f"{count} x {model}" for model, count in models.items()] + _faults(cards)) or "none",
        "memory_mib": sum(_memory(card) for card in cards) // MIB,
        "memory_used_mib": sum(card.memory_used for card in cards) // MIB,
        "cores": sum(_cores(card) for card in cards),
        "cores_used": sum(card.cores_used for card in cards),
        "pods": sum(pod.spec.node_name == node.name and not pod.finished for pod in now.pods.values()),
        "speaks": sorted(node.offers),
    }


def _faults(cards: Sequence[CardState]) -> list[str]:
    """How many of the cards take no new pods, and why."""
    broken = sum(not card.device.healthy for card in cards)
    closed = sum(card.device.healthy and card.device.cordoned for card in cards)
    return [f"{count} {word}" for count, word in ((broken, "unhealthy"), (closed, "cordoned")) if count]


def _memory(card: CardState) -> int:
    """The memory of a card that counts; if it takes no new pods, only what is held, so that free memory is correct."""
    return card.device.memory_bytes if card.device.usable else card.memory_used


def _cores(card: CardState) -> int:
    """The same for cores."""
    return card.device.cores if card.device.usable else card.cores_used
