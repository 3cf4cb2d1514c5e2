"""`subak get`: objects as tables, or whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import msgspec
import yaml

from subak.cli.columns import aligned
from subak.cli.connection import Connection, all_option, connected
from subak.cli.plain import in_json
from subak.cli.targets import Target, targets
from tinykube.codec import decode
from tinykube.discovery import Discovery
from tinykube.status import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@click.command()
@click.argument("objects", nargs=-1, metavar="TYPE [NAME]... | TYPE/NAME...")
@all_option
@click.option("-l", "--selector", metavar="LABELS", help="Only objects with these labels: a=b, a!=b, 'a in (b, c)'.")
@click.option("--field-selector", metavar="FIELDS", help="Only objects with these fields: status.phase=Running.")
@click.option("-w", "--watch", is_flag=True, help="Go on with what changes, until Ctrl-C.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="How to print.")
@connected
async def get(
    connection: Connection,
    objects: tuple[str, ...],
    selector: str | None,
    field_selector: str | None,
    watch: bool,
    output: str | None,
) -> int:
    """Show objects, as kubectl does.

    \b
    Examples:
      subak get pods -A
      subak get pods,nodes -o wide
      subak get pod gpu-pod1 -o yaml
      subak get pods -l app=demo -w
    """
    discovery = await Discovery.of(connection.client)
    wanted = targets(discovery, objects)
    query = {"labelSelector": selector, "fieldSelector": field_selector}
    if watch:
        if len(wanted) != 1:
            raise click.UsageError("--watch follows one type")
        return await _watch(connection, wanted[0], query, wide=output == "wide")
    if output in ("json", "yaml", "name"):
        found = [each for target in wanted for each in await _objects(connection, target, query)]
        _print_whole(found, output, single=all(target.name for target in wanted) and len(wanted) == 1)
        return 0
    return await _print_tables(connection, wanted, query, wide=output == "wide")


async def _objects(connection: Connection, target: Target, query: dict[str, str | None]) -> list[dict[str, Any]]:
    resource = target.known.resource
    if target.name:
        return [await connection.client.get(resource, target.name, target.where(connection))]
    listing = await connection.client.list(
        resource, connection.scope, labels=query["labelSelector"], fields=query["fieldSelector"]
    )
    return [{"apiVersion": resource.api_version, "kind": resource.kind, **each} for each in listing.items]


def _print_whole(found: Sequence[dict[str, Any]], output: str, single: bool) -> None:
    for each in found:
        each["metadata"].pop("managedFields", None)
    if output == "name":
        for each in found:
            click.echo(f"{each['kind'].lower()}/{each['metadata']['name']}")
        return
    whole = found[0] if single else {"apiVersion": "v1", "kind": "List", "items": list(found)}
    if output == "json":
        click.echo(in_json(msgspec.json.format(msgspec.json.encode(whole), indent=4).decode()).encode())
    else:
        click.echo(yaml.safe_dump(whole), nl=False)


async def _print_tables(
    connection: Connection, wanted: Sequence[Target], query: dict[str, str | None], wide: bool
) -> int:
    several, printed = len({target.known for target in wanted}) > 1, False
    for target in wanted:
        table = await _table(connection, target, query)
        if not table["rows"]:
            continue
        if printed and not target.name:
            click.echo()
        names = f"{target.known.singular}/" if several else ""
        everywhere = connection.all and (several or target.known.resource.namespaced)  # as kubectl does
        for row in aligned(_cells(table, names, everywhere, wide, heading=not (printed and target.name))):
            click.echo(row)
        printed = True
    if not printed:
        scoped = any(target.known.resource.namespaced for target in wanted) and not connection.all
        where = f" in {connection.namespace} namespace" if scoped else ""
        click.echo(f"No resources found{where}.", err=True)
    return 0


async def _table(connection: Connection, target: Target, query: dict[str, str | None]) -> dict[str, Any]:
    resource = target.known.resource
    path = resource.path(target.where(connection) if target.name else connection.scope, target.name)
    response = await connection.client.request("GET", path, None if target.name else query, accept=TABLE)
    table: dict[str, Any] = decode(dict, response.body)
    if table.get("kind") != "Table":
        raise ApiError(406, "NotAcceptable", f"the server has no table of {resource}: use -o yaml")
    return table


def _cells(table: dict[str, Any], prefix: str, namespaces: bool, wide: bool, heading: bool = True) -> list[list[str]]:
    shown = [
        (position, column["name"])
        for position, column in enumerate(table["columnDefinitions"])
        if wide or not column.get("priority")
    ]
    rows = [[*(["NAMESPACE"] if namespaces else ()), *(name.upper() for _, name in shown)]] if heading else []
    for row in table["rows"]:
        cells = [_cell(row["cells"][position]) for position, _ in shown]
        cells[0] = prefix + cells[0]
        rows.append([row["object"]["metadata"].get("namespace", ""), *cells] if namespaces else cells)
    return rows


def _cell(value: Any) -> str:
    return "<none>" if value in (None, "") else str(value)


async def _watch(connection: Connection, target: Target, query: dict[str, str | None], wide: bool) -> int:
    """The table, then a line for each change."""
    resource = target.known.resource
    where = {**query, "fieldSelector": f"metadata.name={target.name}"} if target.name else query
    if target.namespace:
        connection = replace(connection, namespace=target.namespace, all=False)
    table = await _table(connection, Target(target.known), where)
    columns, everywhere = table["columnDefinitions"], connection.all and resource.namespaced
    for text in aligned(_cells(table, "", everywhere, wide)):
        click.echo(text)
    following = {**where, "watch": "true", "resourceVersion": table["metadata"]["resourceVersion"]}
    path = resource.path(connection.scope)
    response = await connection.client.request("GET", path, following, accept=TABLE)
    rest = b""
    assert response.stream is not None, "a watch is a stream"
    async for chunk in response.stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise ApiError.from_status(event["object"])
            if event["type"] == "BOOKMARK":
                continue
            columns = event["object"].get("columnDefinitions") or columns
            table = {**event["object"], "columnDefinitions": columns}
            for text in aligned(_cells(table, "", everywhere, wide, heading=False)):
                click.echo(text)
    return 0
