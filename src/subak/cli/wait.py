"""`subak wait`: wait until objects meet a condition."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import click

from subak.cli.connection import Connection, all_option, connected
from subak.cli.durations import duration
from subak.cli.say import complain, say
from subak.cli.targets import Target, targets
from tinykube.discovery import Discovery
from tinykube.status import ApiError
from tinykube.wait import Check, condition, gone, until

DELETE = "delete"

_STEP = re.compile(r"\.(?P<key>(?:[^.\[\]\\{}]|\\.)+)|\[(?P<index>\d+)\]")


@click.command()
@click.argument("objects", nargs=-1, metavar="TYPE NAME... | TYPE/NAME...")
@click.option(
    "--for", "what", required=True, metavar="WHAT",
    help="condition=NAME[=VALUE], jsonpath='{.a.b}'[=VALUE], or delete.",
)  # fmt: skip
@click.option("--timeout", type=duration, default="30s", show_default=True, metavar="DURATION", help="For how long.")
@click.option("--all", "everything", is_flag=True, help="All objects of the type.")
@click.option("-l", "--selector", metavar="LABELS", help="All objects with these labels.")
@all_option
@connected
async def wait(
    connection: Connection, objects: tuple[str, ...], what: str, timeout: float, everything: bool, selector: str | None
) -> int:
    """Wait until objects are as you want them: Ready, in a certain state, or gone.

    \b
    Examples:
      subak wait --for=condition=Ready pod/gpu-pod1 pod/gpu-pod2
      subak wait --for=jsonpath='{.status.phase}'=Succeeded pod job-1 --timeout 1h
      subak wait --for=delete pod/gpu-pod1
      subak wait --for=condition=Ready=false pods --all

    \b
    Exit codes:
      0  all of them are
      1  not all of them in time, or one is not there
      2  bad input
    """
    check = None if what == DELETE else _check(what)
    wanted = await _wanted(connection, objects, everything, selector)
    failures = 0
    tasks = [asyncio.create_task(_one(connection, target, check, timeout)) for target in wanted]
    try:
        for target, task in zip(wanted, tasks, strict=True):
            try:
                await task
                click.echo(f"{target.known.singular}/{target.name} condition met")
            except TimeoutError:
                complain([f"timed out waiting for the condition on {target.known.resource.plural}/{target.name}"])
                failures += 1
            except ApiError as error:
                say(f"Error from server ({error.reason}): {error.message}")
                failures += 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return 1 if failures else 0


async def _wanted(
    connection: Connection, words: tuple[str, ...], everything: bool, selector: str | None
) -> list[Target]:
    found: list[Target] = []
    for target in targets(await Discovery.of(connection.client), words):
        if target.name:
            found.append(target)
            continue
        if not everything and not selector:
            raise click.UsageError(f"say which {target.known.resource.plural}: give names, --all or -l LABELS")
        listing = await connection.client.list(target.known.resource, connection.scope, labels=selector)
        metadata = (each["metadata"] for each in listing.items)
        found += [Target(target.known, each["name"], each.get("namespace", "")) for each in metadata]
    if not found:
        raise click.UsageError("no such object is there")
    return found


async def _one(connection: Connection, target: Target, check: Check | None, timeout: float) -> None:
    """Wait for one object; checks it once even if the timeout is zero.  Raises TimeoutError."""
    client, resource, where = connection.client, target.known.resource, target.where(connection)
    try:
        now: dict[str, Any] = await client.get(resource, target.name, where)
    except ApiError as error:
        if check is None and error.code == 404:
            return
        raise
    if check is not None and check(now):
        return
    async with asyncio.timeout(timeout):
        if check is None:
            await gone(client, resource, target.name, where, now["metadata"]["uid"])
        else:
            await until(client, resource, target.name, where, check)


def _check(what: str) -> Check:
    """The check that `--for` names.  Raises UsageError."""
    form, _, rest = what.partition("=")
    if form == "condition" and rest:
        name, _, value = rest.partition("=")
        return condition(name, value or "True")
    if form == "jsonpath" and rest:
        path, _, value = rest.rpartition("}")
        if path and (not value or value.startswith("=")):
            return _at(_steps(path + "}"), value.removeprefix("=") if value else None)
    raise click.UsageError(
        f"--for={what}: it must be condition=NAME, condition=NAME=VALUE, jsonpath='{{.a.b}}'=VALUE or {DELETE}"
    )


def _steps(path: str) -> list[str | int]:
    """The keys and indices of a path such as `{.status.containerStatuses[0].ready}`."""
    text = path.removeprefix("{").removesuffix("}")
    steps = list(_STEP.finditer(text))
    if not steps or "".join(step[0] for step in steps) != text:
        raise click.UsageError(
            f"--for=jsonpath={path}: write keys and indices, such as {{.status.phase}} or {{.a[0].b}}"
        )
    return [int(step["index"]) if step["index"] else re.sub(r"\\(.)", r"\1", step["key"]) for step in steps]


def _at(steps: list[str | int], value: str | None) -> Callable[[dict[str, Any]], bool]:
    def check(object: dict[str, Any]) -> bool:
        found: Any = object
        for step in steps:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                return False
        text = str(found).lower() if isinstance(found, bool) else str(found)
        return value is None or text == value

    return check
