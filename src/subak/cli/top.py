"""`subak top`: every card, how full it is, and who holds what of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from subak.cli.cards import card_data, show_cards, terminal
from subak.cli.connection import Connection, connected
from subak.cli.live import Picture, picture
from subak.cli.options import output_option
from subak.cli.report import complain, emit

EVERY = 2.0


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-w", "--watch", is_flag=True, help="Draw it again every two seconds, until Ctrl-C.")
@output_option
@connected
async def top(connection: Connection, nodes: tuple[str, ...], watch: bool, output: str) -> int:
    """Draw every card as a bar, with the pods that hold a part of it.

    \b
    Examples:
      subak top            all cards
      subak top p40 -w     the cards of one node, again and again
      subak top -o json    for scripts

    Exit code 2 if a node that is asked for does not exist.
    """
    while True:
        now = await picture(connection.client)
        known = [node.name for node in now.cluster.snapshot]
        unknown = sorted(set(nodes) - set(known))
        if unknown:
            complain([f"node {name} is not there; there are: {', '.join(known) or 'none'}" for name in unknown])
            return 2
        if watch and output in ("text", "wide"):
            click.clear()
        _show(now, nodes or known, output)
        if not watch:
            return 0
        await asyncio.sleep(EVERY)


def _show(now: Picture, names: Sequence[str], output: str) -> None:
    snapshot = now.cluster.snapshot
    waiting = sorted(
        key for key, pod in now.pods.items() if not pod.spec.node_name and not pod.finished and _asks(now, key)
    )
    if output in ("json", "yaml"):
        nodes = [{"name": name, "cards": [card_data(card) for card in snapshot.cards(name)]} for name in sorted(names)]
        emit({"nodes": nodes, "waiting": waiting}, output)
        return
    complain((), now.cluster.warnings)
    show_cards(terminal(), snapshot, [name for name in names if snapshot.cards(name) or output == "wide"])
    if waiting:
        click.echo(f"\nwaiting for a card: {', '.join(waiting)} (subak why POD)")


def _asks(now: Picture, key: str) -> bool:
    """Whether the pod asks for cards at all."""
    try:
        return bool(now.cluster.interpreter.request(now.pods[key]).claims)
    except ValueError:
        return True  # it asks for something that cannot be
