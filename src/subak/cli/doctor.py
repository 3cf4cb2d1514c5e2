"""`subak doctor`: what is wrong with the cluster or with this node, and what to do about it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click

from subak.cli.connection import Blind, Connection, connected
from subak.cli.live import Picture, picture
from subak.cli.say import emit
from subak.doctor import CannotTell, Level
from subak.doctor.cluster import Cluster
from subak.doctor.examine import ALLOW, Examined, examine
from subak.doctor.registry import CLUSTER
from tinykube.endpoint import ConfigError

COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILED: "red", Level.UNKNOWN: "cyan"}
WIDTH = max(len(level) for level in Level)


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to print; json is a stable interface.",
)
@connected
async def doctor(connection: Connection, output: str) -> int:
    """Check the cluster, and say what to do about each thing that is wrong."""
    await connection.client.request("GET", "/version")  # a cluster that cannot be reached is one error, not twenty

    async def look() -> Picture:
        try:
            return await picture(connection.client)
        except Blind as blind:
            raise CannotTell(str(blind).partition(";")[0], ALLOW) from None
        except ConfigError as error:
            raise CannotTell(str(error), "correct the device config first") from None

    cluster = Cluster(connection.client, look, connection.namespace)
    return _report(await examine(cluster, CLUSTER, _progress), output)


def _progress(through: int, of: int) -> None:
    """Say on a terminal how far we are; the line is wiped when all is through."""
    if sys.stderr.isatty():
        click.echo("\r\033[K" if through == of else f"\r{through} of {of} checks", err=True, nl=False)


def _report(examined: Sequence[Examined], output: str) -> int:
    counts = Counter(each.finding.level for each in examined)
    if output == "text":
        _show(examined)
        click.echo(f"\n{', '.join(f'{counts[level]} {level}' for level in Level if counts[level])}")
    else:
        emit({"checks": [_data(each) for each in examined]}, output)
    return 1 if counts[Level.FAILED] else 0


def _show(examined: Sequence[Examined]) -> None:
    names = max(len(each.name) for each in examined)
    for group, members in groupby(examined, key=lambda each: each.group):
        click.echo(group)
        for each in members:
            level = click.style(each.finding.level.ljust(WIDTH), fg=COLOURS[each.finding.level])
            head, margin = f"  {level}  {each.name.ljust(names)}  ", WIDTH + names + 6
            click.echo(head + _wrapped(each.finding.seen, margin))
            if each.finding.remedy:
                click.echo(" " * margin + _wrapped(f"to do: {each.finding.remedy}", margin))


def _wrapped(text: str, margin: int) -> str:
    """The text in lines that fit a terminal; in a pipe it is one line, so that it can be searched."""
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns - margin, 30)
    return f"\n{' ' * margin}".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


def _data(each: Examined) -> dict[str, Any]:
    finding = each.finding
    return {
        "group": each.group,
        "check": each.name,
        "state": str(finding.level),
        "seen": finding.seen,
        "to_do": finding.remedy,
    }
