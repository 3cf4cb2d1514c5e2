"""Nodes as if our own agent ran there: the mark, and a Lease that lives."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from subak.dialects.mark import MARK, NAMESPACE
from tinykube.client import Client
from tinykube.resource import LEASES, NAMESPACES, NODES
from tinykube.status import ApiError


async def mark(client: Client, nodes: Iterable[str], seconds: int = 3_600) -> None:
    """Mark nodes, and let the agents live for so many seconds."""
    await _create_namespace(client)
    for name in nodes:
        await client.patch(NODES, name, "", {"metadata": {"annotations": {MARK: "1"}}})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": now}
        await client.create(LEASES, {"metadata": {"name": name, "labels": {MARK: ""}}, "spec": spec}, NAMESPACE)


async def unmark(client: Client, nodes: Iterable[str]) -> None:
    """Remove the Leases."""
    for name in nodes:
        await client.delete(LEASES, name, NAMESPACE)


async def _create_namespace(client: Client) -> None:
    try:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
