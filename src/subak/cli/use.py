"""What tenants really use of their cards, beside what they have booked.

The nodes of a cluster report it in kubelet's Summary API, which the API server passes on.  Many kubelets do not report
accelerators, and some users may not ask them: then the use is unknown, which is not the same as zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from subak.model.manifest import Lean
from subak.node.usage import Use, Uses
from tinykube.client import Client
from tinykube.codec import BadAnswer, decode
from tinykube.resource import NODES
from tinykube.status import ApiError

AT_ONCE = 16
PATIENCE = 3.0
"""Seconds to wait for a node's answer: a node that is down must not delay the others."""
MOST_NODES = 200
"""No more nodes are asked, at one request each; users can name the nodes that they want."""


class Accelerator(Lean, frozen=True, gc=False, kw_only=True):
    """A container's part of a card.  Kubelet's own type cannot express an unknown share of time."""

    id: str = ""
    memory_used: int = 0
    duty_cycle: int | None = None


class ContainerStats(Lean, frozen=True, gc=False, kw_only=True):
    """A container."""

    accelerators: tuple[Accelerator, ...] | None = None


class PodReference(Lean, frozen=True, gc=False, kw_only=True):
    """Which pod it is."""

    name: str = ""
    namespace: str = ""


class PodStats(Lean, frozen=True, gc=False, kw_only=True):
    """A pod."""

    pod_ref: PodReference
    containers: tuple[ContainerStats, ...] | None = None


class Summary(Lean, frozen=True, gc=False, kw_only=True):
    """The fields of a node's answer that we read."""

    pods: tuple[PodStats, ...] | None = None


async def of_nodes(client: Client, names: Collection[str]) -> Uses:
    """What the pods of these nodes use, as far as the nodes report it."""
    if len(names) > MOST_NODES:
        return {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> Summary:
        try:
            async with gate, asyncio.timeout(PATIENCE):
                answer = await client.request("GET", f"{NODES.path(name=name)}/proxy/stats/summary")
            return decode(Summary, answer.body)
        except (ApiError, BadAnswer, TimeoutError):
            # The node is missing, forbidden, silent, or has no summary: its cards are shown all the same.
            return Summary()

    uses: dict[tuple[str, str], Use] = {}
    for summary in await asyncio.gather(*map(ask, names)):
        for pod in summary.pods or ():
            for accelerator in (each for container in pod.containers or () for each in container.accelerators or ()):
                key = accelerator.id, f"{pod.pod_ref.namespace}/{pod.pod_ref.name}"
                use = Use(accelerator.memory_used, accelerator.duty_cycle)
                uses[key] = uses[key] + use if key in uses else use
    return uses
