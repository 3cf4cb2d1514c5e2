"""`subak apply`: create or change objects as files say."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from subak.cli.connection import Connection, connected
from subak.cli.files import Document, FileError, documents
from subak.cli.say import complain
from tinykube.client import APPLY_PATCH
from tinykube.codec import decode
from tinykube.discovery import Discovery, Known, UnknownKind
from tinykube.resource import BadName
from tinykube.status import ApiError

MANAGER = "subak-apply"


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE|DIRECTORY",
    help="Objects, as YAML or JSON; '-' is standard input.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Let the server check everything and change nothing.")
@click.option("--force", is_flag=True, help="Take over fields that others have written.")
@connected
async def apply(connection: Connection, files: tuple[str, ...], dry_run: bool, force: bool) -> int:
    """Create objects, or change them to what the files say.

    Bad objects are reported, the others are applied all the same.

    \b
    Examples:
      subak apply -f examples/volcano
      subak apply -f pod.yaml --dry-run

    \b
    Exit codes:
      0  everything is as the files say
      1  the server refused something
      2  a file cannot be read
    """
    discovery = await Discovery.of(connection.client)
    errors = refused = 0
    for document in (each for path in files for each in documents(path)):
        if isinstance(document, FileError):
            complain([str(document)])
            errors += 1
            continue
        try:
            known = discovery.kind(str(document.content.get("apiVersion", "")), document.kind)
            click.echo(await _apply(connection, known, document, dry_run, force))
        except UnknownKind as error:
            complain([f"{document.place}: {error.args[0]}"])
            errors += 1
        except (ApiError, BadName) as error:
            complain([f"{document.place}: {error}"])
            refused += 1
    return 2 if errors else 1 if refused else 0


async def _apply(connection: Connection, known: Known, document: Document, dry_run: bool, force: bool) -> str:
    """Apply one object; gives the line to print."""
    resource, content = known.resource, document.content
    namespace = (document.namespace or connection.namespace) if resource.namespaced else ""
    name = document.name
    if not name and document.metadata.get("generateName"):
        created = await connection.client.create(resource, content, namespace, dry_run=dry_run)
        return f"{known.singular}/{created['metadata']['name']} created"
    before = await _revision(connection, known, name, namespace)
    query = {
        "fieldManager": MANAGER,
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else None,
        "force": "true" if force else "false",
    }
    response = await connection.client.request(
        "PATCH", resource.path(namespace, name), query, msgspec.json.encode(content), APPLY_PATCH
    )
    after: dict[str, Any] = decode(dict, response.body)
    word = "created" if before is None else "configured"
    if before is not None and after["metadata"].get("resourceVersion") == before:
        word = "unchanged"
    return f"{known.singular}/{name} {word}{' (server dry run)' if dry_run else ''}"


async def _revision(connection: Connection, known: Known, name: str, namespace: str) -> str | None:
    try:
        object = await connection.client.get(known.resource, name, namespace)
    except ApiError as error:
        if error.code == 404:
            return None
        raise
    return str(object["metadata"]["resourceVersion"])
