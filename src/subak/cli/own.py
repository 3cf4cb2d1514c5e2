"""What `top` shows to a user who sees only the pods of a namespace: where they are, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from subak.cli.columns import aligned
from subak.cli.connection import Connection
from subak.cli.live import speaking
from subak.cli.say import complain, emit
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import MIB
from subak.model.reason import Refusal
from subak.model.request import Claim
from tinykube.resource import PODS


async def show(connection: Connection, interpreter: Interpreter | None, output: str, blind: str) -> None:
    """Print the namespace's pods that ask for cards, and a note that says why there is no more."""
    interpreter = interpreter or await speaking(connection.client)
    listing = await connection.client.list(PODS, connection.scope, strict=False, type=manifest.Pod)
    rows = [row for pod in listing.items if not pod.finished and (row := _row(interpreter, pod)) is not None]
    if output in ("json", "yaml"):
        emit({"pods": rows}, output)
        return
    complain((), (), [f"only the pods of namespace {connection.namespace} are shown: {blind}"])
    table = [["POD", "NODE", "ASKS FOR"], *([row["pod"], row["node"] or "-", row["asks"]] for row in rows)]
    for line in aligned(table):
        click.echo(line)


def _row(interpreter: Interpreter, pod: manifest.Pod) -> dict[str, Any] | None:
    """A pod; None if it asks for no card."""
    try:
        claims: Sequence[Claim] = interpreter.request(pod).claims
    except Refusal as refusal:
        return {"pod": pod.key, "node": pod.spec.node_name, "asks": refusal.message}
    asks = ", ".join(_words(claim) for claim in claims)
    return {"pod": pod.key, "node": pod.spec.node_name, "asks": asks} if asks else None


def _words(claim: Claim) -> str:
    """A claim as `2 x nvidia, 8,192 MiB, 30 % of cores`."""
    words = [f"{claim.count} x {'/'.join(sorted(claim.families))}"]
    if claim.memory_bytes:
        words.append(f"{claim.memory_bytes // MIB:,} MiB")
    if claim.memory_percent:
        words.append(f"{claim.memory_percent} % of memory")
    if claim.cores:
        words.append(f"{claim.cores} % of cores")
    return ", ".join(words)
