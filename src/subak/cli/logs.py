"""`subak logs`: the output of a container."""

from __future__ import annotations

import sys
from math import ceil

import click

from subak.cli import targets
from subak.cli.connection import Connection, connected
from subak.cli.durations import duration


@click.command()
@click.argument("pod", metavar="POD")
@click.option("-c", "--container", metavar="NAME", help="The container; needed if the pod has several.")
@click.option("-f", "--follow", is_flag=True, help="Go on while it prints.")
@click.option("-p", "--previous", is_flag=True, help="Of the container's last run, before it was started again.")
@click.option("--timestamps", is_flag=True, help="Begin each line with its time.")
@click.option("--tail", type=int, metavar="LINES", help="Only the last lines.")
@click.option("--since", type=duration, metavar="DURATION", help="Only what is newer: 90s, 5m, 1h30m.")
@connected
async def logs(
    connection: Connection,
    pod: str,
    container: str | None,
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: int | None,
    since: float | None,
) -> None:
    """Print what a container of POD printed.

    \b
    Examples:
      subak logs gpu-pod1
      subak logs gpu-pod1 -f --tail 20
      subak logs default/gpu-pod1 --since 1h
    """
    namespace, name = targets.pod(connection, pod)
    chunks = await connection.client.logs(
        name,
        namespace,
        container=container,
        follow=follow,
        previous=previous,
        timestamps=timestamps,
        tail_lines=tail,
        since_seconds=None if since is None else ceil(since),
    )
    async for chunk in chunks:
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
