"""`subak delete`: delete objects, and wait until they are gone."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import click

from subak.cli.connection import Connection, all_option, connected
from subak.cli.durations import duration
from subak.cli.files import FileError, documents
from subak.cli.say import complain
from subak.cli.targets import Target, targets
from tinykube.discovery import Discovery, UnknownKind
from tinykube.resource import BadName
from tinykube.status import ApiError
from tinykube.wait import gone


@click.command()
@click.argument("objects", nargs=-1, metavar="[TYPE NAME... | TYPE/NAME...]")
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE|DIRECTORY", help="The objects in these files.")
@click.option("--all", "everything", is_flag=True, help="All objects of the type.")
@click.option("-l", "--selector", metavar="LABELS", help="All objects with these labels.")
@all_option
@click.option("--grace-period", "grace", type=duration, metavar="DURATION", help="How long a pod may take to end: 5s.")
@click.option("--force", is_flag=True, help="At once, with no time to end.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return when they are gone.")
@click.option("--ignore-not-found", is_flag=True, help="What is not there is no error.")
@connected
async def delete(
    connection: Connection,
    objects: tuple[str, ...],
    files: tuple[str, ...],
    everything: bool,
    selector: str | None,
    grace: float | None,
    force: bool,
    wait: bool,
    ignore_not_found: bool,
) -> int:
    """Delete objects.

    \b
    Examples:
      subak delete pod gpu-pod1
      subak delete -f examples/volcano
      subak delete pods --all --force

    \b
    Exit codes:
      0  they are gone (or, with --no-wait, going)
      1  something is not there, or the server refused
      2  a file cannot be read, or it is not said what to delete
    """
    discovery = await Discovery.of(connection.client)
    doomed, errors = _of_files(discovery, connection, files)
    if objects:
        for target in targets(discovery, objects):
            doomed += await _named(connection, target, everything, selector)
    elif not files:
        raise click.UsageError("say what to delete: TYPE NAME, or -f FILE")
    failures = 0
    going = []
    for target in doomed:
        try:
            uid = await _delete(connection, target, 0 if force else grace)
            click.echo(f'{target.known.singular} "{target.name}" {"force " if force else ""}deleted')
            going.append((target, uid))
        except BadName as error:
            complain([str(error)])
            errors += 1
        except ApiError as error:
            if error.code != 404 or not ignore_not_found:
                complain([error.message])
                failures += 1
    if wait:
        for target, uid in going:
            await gone(connection.client, target.known.resource, target.name, target.where(connection), uid)
    return 2 if errors else 1 if failures else 0


def _of_files(discovery: Discovery, connection: Connection, files: Sequence[str]) -> tuple[list[Target], int]:
    doomed: list[Target] = []
    errors = 0
    for document in (each for path in files for each in documents(path)):
        try:
            if isinstance(document, FileError):
                raise document
            known = discovery.kind(str(document.content.get("apiVersion", "")), document.kind)
        except (FileError, UnknownKind) as error:
            complain([str(error.args[0])])
            errors += 1
            continue
        doomed.append(Target(known, document.name, document.namespace))
    return doomed, errors


async def _named(connection: Connection, target: Target, everything: bool, selector: str | None) -> list[Target]:
    if target.name:
        return [target]
    if not everything and not selector:
        raise click.UsageError(f"say which {target.known.resource.plural}: give names, --all or -l LABELS")
    found = (await connection.client.list(target.known.resource, connection.scope, labels=selector)).items
    return [Target(target.known, each["metadata"]["name"], each["metadata"].get("namespace", "")) for each in found]


async def _delete(connection: Connection, target: Target, grace: float | None) -> str:
    """Delete one object; gives its UID if the server says it."""
    answer = await connection.client.delete(
        target.known.resource,
        target.name,
        target.where(connection),
        grace=None if grace is None else ceil(grace),
        propagation="Background",
    )
    uid = answer.get("details", {}).get("uid") or answer.get("metadata", {}).get("uid")
    return str(uid or "")
