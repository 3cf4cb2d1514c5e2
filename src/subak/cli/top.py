"""`subak top`: every card, how full it is, what each tenant holds of it, and what is really used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click

from subak.cli import own
from subak.cli.cards import terminal, used_card_data
from subak.cli.connection import Blind, Connection, connected_or
from subak.cli.drawing import Scene, draw
from subak.cli.live import Picture, picture
from subak.cli.machine import OwnCards, in_use, own_cards
from subak.cli.options import live_config_option, output_option
from subak.cli.say import complain, emit
from subak.cli.use import agents, of_nodes
from subak.dialects.interpreter import Interpreter
from subak.local.slices import CardsTaken
from subak.node.usage import Uses

EVERY = 2.0
FOR_PEOPLE = ("text", "wide")


async def _alone(
    why: str, nodes: tuple[str, ...], watch: bool, output: str, device_config: Interpreter | None
) -> int | None:
    """Show the machine's own cards, without a cluster."""

    async def show() -> int | None:
        machine = _own_cards(always=True)
        if machine is None or (nodes and nodes != (machine.node.name,)):
            return None
        complain((), (), [f"this machine's own cards and the slices of `subak run`, without a cluster: {why}"])
        if output in FOR_PEOPLE:
            _show_machine(machine)
        else:
            emit({"nodes": [], "waiting": [], "machine": _machine_data(machine)}, output)
        return 0

    return await _again(show, watch, output)


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option("-w", "--watch", is_flag=True, help="Draw it again every two seconds, until Ctrl-C.")
@live_config_option
@output_option
@connected_or(_alone)
async def top(
    connection: Connection, nodes: tuple[str, ...], watch: bool, output: str, device_config: Interpreter | None
) -> int | None:
    """Draw every card as a bar, with the pods that hold a part of it, and what they use of that.

    What is used is known where libsubak counts it: the agents of the nodes tell it, and a warning says which do not.
    Slices of `subak run` on this machine are shown as well, also without a cluster.  A user who may not see nodes sees
    the pods of the namespace, and what they ask for.

    \b
    Examples:
      subak top            all cards
      subak top p40 -w     the cards of one node, again and again
      subak top -o json    for scripts

    Exit code 2 if a node that is asked for does not exist.
    """

    async def show() -> int | None:
        try:
            now = await picture(connection.client, device_config)
        except Blind as blind:
            await own.show(connection, device_config, output, str(blind))
            return 0
        known = [node.name for node in now.cluster.snapshot]
        unknown = sorted(set(nodes) - set(known))
        if unknown:
            complain([f"node {name} is not there; there are: {', '.join(known) or 'none'}" for name in unknown])
            return 2
        chosen = sorted(nodes or known)
        held = [name for name in chosen if any(card.tenants for card in now.cluster.snapshot.cards(name))]
        reported = await of_nodes(connection.client, held, agents(now.pods.values()))
        complain((), reported.complaints())
        machine = None if nodes else _own_cards()
        _show(now, chosen, reported.uses, machine, output)
        return 0

    return await _again(show, watch, output)


def _own_cards(*, always: bool = False) -> OwnCards | None:
    """The machine's own cards if a command has a slice of them, or always."""
    try:
        return own_cards() if always or in_use() else None
    except CardsTaken as problem:
        complain((), [f"who has slices of this machine's own cards is not known: {problem}"])
        return None


async def _again(show: Callable[[], Awaitable[int | None]], watch: bool, output: str) -> int | None:
    """Show it once, or every few seconds until it fails."""
    while True:
        if watch and output in FOR_PEOPLE:
            click.clear()
        code = await show()
        if code != 0 or not watch:
            return code
        await asyncio.sleep(EVERY)


def _show(now: Picture, names: Sequence[str], uses: Uses, machine: OwnCards | None, output: str) -> None:
    snapshot = now.cluster.snapshot
    chosen = [node for node in snapshot if node.name in names]
    waiting = sorted(
        key for key, pod in now.pods.items() if not pod.spec.node_name and not pod.finished and _asks(now, key)
    )
    if output not in FOR_PEOPLE:
        nodes = [
            {"name": node.name, "cards": [used_card_data(node, card, uses) for card in snapshot.cards(node.name)]}
            for node in chosen
        ]
        emit({"nodes": nodes, "waiting": waiting, "machine": machine and _machine_data(machine)}, output)
        return
    complain((), now.cluster.warnings)
    console = terminal()
    scenes = [Scene(node, snapshot.cards(node.name)) for node in chosen]
    draw(console, [scene for scene in scenes if scene.cards or output == "wide"], uses)
    if waiting:
        click.echo(waiting_line(waiting))
    if machine is not None:
        click.echo("\nThis machine's own cards, and slices of `subak run`:")
        _show_machine(machine)


def waiting_line(keys: Sequence[str]) -> str:
    """The pods that wait, in one line."""
    return f"waiting for a card: {', '.join(keys)} (subak why POD)"


def _show_machine(machine: OwnCards) -> None:
    draw(terminal(), [Scene(machine.node, machine.cards)], machine.uses)
    if machine.owner:
        click.echo(f"the cards belong to {machine.owner}: what its pods hold is not known here")
    if machine.waiting:
        click.echo(f"waiting for a card: {', '.join(machine.waiting)}")


def _machine_data(machine: OwnCards) -> dict[str, Any]:
    cards = [used_card_data(machine.node, card, machine.uses) for card in machine.cards]
    return {"name": machine.node.name, "owner": machine.owner, "cards": cards, "waiting": list(machine.waiting)}


def _asks(now: Picture, key: str) -> bool:
    """Whether the pod asks for cards at all."""
    try:
        return bool(now.cluster.interpreter.request(now.pods[key]).claims)
    except ValueError:
        return True  # it asks for something impossible
