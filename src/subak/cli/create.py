"""`subak create`: objects that the examples need and that come from no file."""

from __future__ import annotations

import click

from subak.cli.connection import Connection, connected
from tinykube.resource import NAMESPACES


@click.group()
def create() -> None:
    """Create a namespace.  Everything else comes from files: subak apply -f FILE.

    \b
    Example:
      subak create namespace team-a
    """


@create.command()
@click.argument("name", metavar="NAME")
@click.option("--dry-run", is_flag=True, help="Let the server check it and change nothing.")
@connected
async def namespace(connection: Connection, name: str, dry_run: bool) -> None:
    """Create a namespace.

    \b
    Example:
      subak create namespace team-a
      subak apply -n team-a -f pod.yaml

    \b
    Exit codes:
      0  it is there
      1  the server refused: there is one of this name, or it can be no name
    """
    content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await connection.client.create(NAMESPACES, content, dry_run=dry_run)
    click.echo(f"namespace/{name} created{' (server dry run)' if dry_run else ''}")
