"""`subak describe`: objects in detail, with their events."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import click

from subak.cli import description
from subak.cli.columns import aligned
from subak.cli.connection import Connection, all_option, connected
from subak.cli.plain import plain
from subak.cli.targets import targets
from tinykube.discovery import Discovery
from tinykube.resource import EVENTS


@click.command()
@click.argument("objects", nargs=-1, metavar="TYPE [NAME]... | TYPE/NAME...")
@all_option
@connected
async def describe(connection: Connection, objects: tuple[str, ...]) -> None:
    """Show objects in detail, with their events.

    \b
    Examples:
      subak describe pod gpu-pod1
      subak describe nodes
    """
    client = connection.client
    separator = ""
    for target in targets(await Discovery.of(client), objects):
        resource = target.known.resource
        if target.name:
            found = [await client.get(resource, target.name, target.where(connection))]
        else:
            found = (await client.list(resource, connection.scope)).items
        for each in found:
            click.echo(separator, nl=False)
            separator = "\n\n"
            for line in description.lines(description.of({"kind": resource.kind, **each})):
                click.echo(plain(line))
            await _events(connection, each)


async def _events(connection: Connection, object: dict[str, Any]) -> None:
    metadata = object["metadata"]
    about = f"involvedObject.name={metadata['name']},involvedObject.uid={metadata['uid']}"
    found = (await connection.client.list(EVENTS, metadata.get("namespace", ""), fields=about)).items
    found.sort(key=_when)
    if not found:
        click.echo("Events: <none>")
        return
    now = time.time()
    ages = {position: _age(now - _when(event)) for position, event in enumerate(found)}
    click.echo("Events:")
    for line in aligned(description.events(found, ages)):
        click.echo("  " + line)


def _when(event: dict[str, Any]) -> float:
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return datetime.fromisoformat(text).timestamp()


def _age(seconds: float) -> str:
    """A short age: 12s, 5m, 3h, 2d."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(max(seconds, 0))}s"
