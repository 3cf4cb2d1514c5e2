"""`subak doctor`: what is wrong with the cluster or with this node, and what to do about it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from subak.cli.connection import Blind, Connection, connected_or
from subak.cli.live import Picture, picture
from subak.cli.plain import plain
from subak.cli.say import emit
from subak.doctor import CannotTell, Level
from subak.doctor.cluster import Cluster
from subak.doctor.examine import ALLOW, Examined, examine
from subak.doctor.node import WINDOW, Computer
from subak.doctor.registry import CLUSTER, NODE
from tinykube.endpoint import ConfigError

COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILED: "red", Level.UNKNOWN: "cyan"}
WIDTH = max(len(level) for level in Level)


async def _alone(why: str, node: bool, host_root: Path, agent: str, output: str) -> int | None:
    """Check this computer, without a cluster."""
    return await _computer(Computer(host_root, window=agent), output) if node else None


@click.command()
@click.option("--node", is_flag=True, help="Check this computer, a node, in the place of the cluster.")
@click.option(
    "--host-root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default="/",
    show_default=True,
    metavar="DIR",
    help="Where the node's files are: another folder if this runs in a pod.",
)
@click.option(
    "--agent",
    default=WINDOW,
    show_default=True,
    metavar="URL",
    help="Where the agent of this node listens.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to print; json is a stable interface.",
)
@connected_or(_alone)
async def doctor(connection: Connection, node: bool, host_root: Path, agent: str, output: str) -> int:
    """Check the cluster, or this node, and say what to do about each thing that is wrong.

    It changes nothing.  What it tries on a cluster is a dry run, in the namespace of -n.  It needs no rights of its
    own: what it may not look at is "not known", and the role that would show it is named.  With --node it looks at the
    computer on which it runs, best as root, and needs no cluster.

    \b
    Examples:
      subak doctor                the cluster
      subak doctor -o json        for scripts
      sudo subak doctor --node    the node on which it runs

    \b
    Exit codes:
      0  nothing has failed; there may be warnings, and things that are not known
      1  something has failed, or the cluster cannot be reached
      2  bad input
    """
    if node:
        return await _computer(Computer(host_root, connection.client, agent), output)
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


async def _computer(computer: Computer, output: str) -> int:
    return _report(await examine(computer, NODE, _progress), output)


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
            click.echo(head + _wrapped(plain(each.finding.seen), margin))
            if each.finding.remedy:
                click.echo(" " * margin + _wrapped(plain(f"to do: {each.finding.remedy}"), margin))


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
