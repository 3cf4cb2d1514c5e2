"""A cluster as its API server tells of it, with whatever rights the user has.

What several checks need is asked once.  Nothing is stored: what a check tries is a dry run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import msgspec

from subak.dialects.interpreter import Interpreter
from subak.doctor.cluster.objects import Lease, Node, Pod, Ready
from subak.doctor.once import Once
from subak.model import manifest
from subak.scheduler.configuration import NAMESPACE
from subak.snapshot.cluster import Snapshot
from tinykube.answers import refused
from tinykube.client import Client
from tinykube.resource import LEASES, NODES, PODS
from tinykube.transport import Request

EMBEDDED = "subak"
"""What the API server of `subak up` adds to its version."""
LABELS = "app.kubernetes.io/name=subak"
COMPONENT = "app.kubernetes.io/component"
CONTROLLER, AGENT = "controller", "agent"


class Books(Protocol):
    """What the nodes have and what pods hold of it, as `subak top` reads it; `warnings` say what could not be read."""

    interpreter: Interpreter
    snapshot: Snapshot
    warnings: list[str]


class Ledger(Protocol):
    """The books, and the pods of which they were made, by namespace and name."""

    @property
    def cluster(self) -> Books: ...

    @property
    def pods(self) -> Mapping[str, manifest.Pod]: ...


@dataclass(frozen=True, slots=True)
class Server:
    """The API server: its version as it writes it, and by how many seconds its clock is ahead of ours."""

    version: str
    ahead: float

    @property
    def embedded(self) -> bool:
        """Whether it is that of `subak up`, which schedules and reviews pods by itself."""
        return self.version.partition("+")[2] == EMBEDDED

    @property
    def number(self) -> tuple[int, int] | None:
        """Major and minor version; None if they cannot be read."""
        found = re.match(r"v?(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else None


async def server(client: Client, clock: Callable[[], float] = time.time) -> Server:
    """The API server that a client speaks to."""
    asked = clock()
    response = await client.request("GET", "/version")
    ahead = _ahead(response.headers.get("date", ""), (asked + clock()) / 2)
    return Server(str(msgspec.json.decode(response.body).get("gitVersion")), ahead)


class Cluster:
    """One cluster.  `look` reads the ledger; `namespace` is where something is tried, dry."""

    def __init__(
        self,
        client: Client,
        look: Callable[[], Awaitable[Ledger]],
        namespace: str = "default",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.namespace = namespace
        self._clock = clock
        self.server = Once(lambda: server(client, clock))
        self.ledger = Once(look)
        self.nodes = Once(self._nodes)
        self.pods = Once(self._pods)
        self.leases = Once(self._leases)
        self.programs = Once(self._programs)
        self.controller = Once(self._controller)

    async def now(self) -> float:
        """The API server's time, in seconds since 1970: Leases are compared with it, not with this computer's."""
        return self._clock() + (await self.server()).ahead

    async def readiness(self, path: str) -> Ready | None:
        """What a program says at `/readyz`, through the API server's proxy; None if nobody answers there.

        A program that is not ready answers 503, with the same content.  Raises ApiError if the user may not ask.
        """
        where = f"/api/v1/namespaces/{NAMESPACE}/{path}/proxy/readyz"
        response = await self.client.transport.send(Request("GET", where, headers={"accept": "*/*"}))
        if response.status == 403:
            raise await refused(response)
        try:
            said: dict[str, Any] = msgspec.json.decode(response.body, type=dict[str, Any])
            return None if said.get("kind") == "Status" else msgspec.convert(said, Ready)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None

    async def ours(self, component: str) -> list[dict[str, Any]]:
        """The pods of one of our programs."""
        return [pod for pod in await self.programs() if _component(pod) == component]

    async def _nodes(self) -> list[Node]:
        listing = await self.client.list(NODES, strict=False, type=Node)
        return sorted(listing.items, key=lambda node: node.name)

    async def _pods(self) -> list[Pod]:
        return (await self.client.list(PODS, strict=False, type=Pod)).items

    async def _leases(self) -> dict[str, Lease]:
        """The Leases of our own namespace, by name."""
        listing = await self.client.list(LEASES, NAMESPACE, strict=False, type=Lease)
        return {each.metadata.name: each for each in listing.items}

    async def _programs(self) -> list[dict[str, Any]]:
        listing = await self.client.list(PODS, NAMESPACE, labels=LABELS)
        return sorted(listing.items, key=lambda pod: str(pod["metadata"]["name"]))

    async def _controller(self) -> Ready | None:
        return await self.readiness("services/subak-controller:http")


def _component(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(COMPONENT, ""))


def _ahead(date: str, now: float) -> float:
    """By how much the server's clock is ahead; 0 within the second that its `Date` leaves open."""
    try:
        told = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
    return 0.0 if told - 1 <= now <= told + 2 else told + 0.5 - now
