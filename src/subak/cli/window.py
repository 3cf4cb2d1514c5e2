"""What the controller knows, asked through the API server's proxy to its Service.

It needs no other way into the cluster than the user's own.  A user who may not use the proxy, or a cluster without a
controller (`subak up` runs the scheduler itself), gets no answer, and the command does without.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from subak.batch.overview import JobView, QueueView
from subak.policy.explain import Explanation
from subak.scheduler.configuration import NAMESPACE
from tinykube.client import Client
from tinykube.codec import BadAnswer, decode
from tinykube.status import ApiError

T = TypeVar("T")

SERVICE = "subak-controller:http"
PATIENCE = 5.0


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows of a pod."""

    state: str = ""
    reason: str = ""
    story: list[str] = []
    explanation: Explanation | None = None


class KnownGang(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows of a gang: why it waits, and the stories of its members by their keys."""

    message: str = ""
    stories: dict[str, list[str]] = {}


class Queues(msgspec.Struct, frozen=True):
    """How queues stand."""

    queues: list[QueueView]


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a queue, in their order."""

    jobs: list[JobView]


async def of_queues(client: Client) -> list[QueueView] | None:
    """How queues stand; None if the controller does not answer."""
    known = await _ask(client, "queues", Queues)
    return None if known is None else known.queues


async def of_jobs(client: Client, queue: str) -> list[JobView] | None:
    """The jobs of a queue, in their order; None if the controller does not answer."""
    known = await _ask(client, f"queues/{queue}", Jobs)
    return None if known is None else known.jobs


async def of_pod(client: Client, namespace: str, name: str) -> Known | None:
    """What the controller knows of a pod; None if it does not answer."""
    return await _ask(client, f"pods/{namespace}/{name}", Known)


async def of_gang(client: Client, words: str, name: str) -> KnownGang | None:
    """What the controller knows of a gang, by its `namespace/name`; None if it does not answer."""
    return await _ask(client, f"gangs/{words}/{name}", KnownGang)


async def _ask(client: Client, path: str, type: type[T]) -> T | None:
    whole = f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}/proxy/{path}"
    try:
        async with asyncio.timeout(PATIENCE):
            return decode(type, (await client.request("GET", whole)).body)
    except (ApiError, BadAnswer, TimeoutError):
        return None
