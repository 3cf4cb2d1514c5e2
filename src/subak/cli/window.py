"""What the controller knows, asked through the API server's proxy to its Service.

It needs no other way into the cluster than the user's own.  A user who may not use the proxy, or a cluster without a
controller (`subak up` runs the scheduler itself), gets no answer, and the command does without.
"""

from __future__ import annotations

import asyncio

import msgspec

from subak.batch.overview import QueueView
from subak.policy.explain import Explanation
from subak.scheduler.configuration import NAMESPACE
from tinykube.client import Client
from tinykube.codec import BadAnswer, decode
from tinykube.status import ApiError

SERVICE = "subak-controller:http"
PATIENCE = 5.0


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the controller knows of a pod."""

    state: str = ""
    reason: str = ""
    story: list[str] = []
    explanation: Explanation | None = None


class Queues(msgspec.Struct, frozen=True):
    """How queues stand."""

    queues: list[QueueView]


async def of_queues(client: Client) -> list[QueueView] | None:
    """How queues stand; None if the controller does not answer."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}/proxy/queues"
    try:
        async with asyncio.timeout(PATIENCE):
            return decode(Queues, (await client.request("GET", path)).body).queues
    except (ApiError, BadAnswer, TimeoutError):
        return None


async def of_pod(client: Client, namespace: str, name: str) -> Known | None:
    """What the controller knows of a pod; None if it does not answer."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}/proxy/pods/{namespace}/{name}"
    try:
        async with asyncio.timeout(PATIENCE):
            return decode(Known, (await client.request("GET", path)).body)
    except (ApiError, BadAnswer, TimeoutError):
        return None
