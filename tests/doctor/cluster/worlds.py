"""Clusters for the checks: prepared answers of an API server, and ledgers made of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from subak.cli.cluster import Cluster as Books
from subak.dialects.interpreter import Interpreter
from subak.doctor import Check, Finding, Level
from subak.doctor.cluster import Cluster
from subak.model import manifest
from tests.doctor.canned import LEASES, Answer, client, items
from tinykube.resource import PODS

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


@dataclass
class Ledger:
    """Books that the test has filled."""

    cluster: Books = field(default_factory=lambda: Books(Interpreter()))
    pods: dict[str, manifest.Pod] = field(default_factory=dict)


def ledger(
    nodes: Sequence[dict[str, Any]] = (),
    pods: Sequence[dict[str, Any]] = (),
    devices: Sequence[dict[str, Any]] = (),
) -> Ledger:
    """The ledger of these objects, as commands read them."""
    made = Ledger()
    lean = [msgspec.convert(each, manifest.Pod, strict=False) for each in pods]
    described = [msgspec.convert(each, manifest.Node, strict=False) for each in nodes]
    koordinator = [msgspec.convert(each, manifest.Device, strict=False) for each in devices]
    made.cluster.fill({"Node": described, "Pod": lean, "Device": koordinator})
    made.pods = {pod.key: pod for pod in lean}
    return made


async def nothing() -> Ledger:
    """The ledger of an empty cluster."""
    return Ledger()


async def found(check: Check[Cluster], answers: dict[str, Answer], books: Ledger | None = None) -> Sequence[Finding]:
    """What a check finds on a cluster with these answers, at noon."""

    async def look() -> Ledger:
        return books or Ledger()

    pods: dict[str, Answer] = {f"GET {PODS.path()}": items()}
    return await check(Cluster(client(pods | answers), look, "default", lambda: NOW.timestamp()))


def levels(findings: Sequence[Finding]) -> list[Level]:
    return [each.level for each in findings]


def lease(name: str, holder: str | None = "somebody", seconds_ago: float = 1, lasts: int = 15) -> dict[str, Any]:
    """A Lease that was renewed so many seconds before noon."""
    renewed = datetime.fromtimestamp(NOW.timestamp() - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": lasts}
    return {"metadata": {"name": name, "namespace": "subak-system"}, "spec": spec}


def leases(*objects: dict[str, Any]) -> dict[str, Answer]:
    """The Leases of our namespace."""
    return {f"GET {LEASES}": items(*objects)}


def node(
    name: str, way: str = "", runtime: str = "containerd://2.3.7", capacity: dict[str, str] | None = None
) -> dict[str, Any]:
    """A node, with the mark of our agent if it has a way."""
    metadata = {"name": name, "annotations": {"subak.io/agent": way} if way else {}}
    amounts, info = capacity or {}, {"containerRuntimeVersion": runtime}
    return {"metadata": metadata, "status": {"nodeInfo": info, "capacity": amounts, "allocatable": amounts}}
