"""What tenants really use of their cards, beside what they have booked.

The nodes of a cluster tell it by kubelet's Summary API, which the API server passes on.  Many kubelets say nothing of
accelerators, and not everybody may ask them: then nothing is known, which is something else than nothing used.
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
"""Seconds to wait for a node's answer: one that is down must not keep us from the others."""
MOST_NODES = 200
"""More nodes are not asked, at one request each; whoever wants their figures names them."""


class Accelerator(Lean, frozen=True, gc=False, kw_only=True):
    """A container's part of a card.  Kubelet's own type has no word for an unknown share of time."""

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
    """What we read of a node's answer."""

    pods: tuple[PodStats, ...] | None = None


async def of_nodes(client: Client, names: Collection[str]) -> Uses:
    """What the pods of these nodes use, as far as the nodes tell."""
    if len(names) > MOST_NODES:
        return {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str) -> Summary:
        try:
            async with gate, asyncio.timeout(PATIENCE):
                answer = await client.request("GET", f"{NODES.path(name=name)}/proxy/stats/summary")
            return decode(Summary, answer.body)
        except (ApiError, BadAnswer, TimeoutError):
            # Not there, not allowed, not answering, or no summary: its cards are shown all the same.
            return Summary()

    uses: dict[tuple[str, str], Use] = {}
    for summary in await asyncio.gather(*map(ask, names)):
        for pod in summary.pods or ():
            for accelerator in (each for container in pod.containers or () for each in container.accelerators or ()):
                key = accelerator.id, f"{pod.pod_ref.namespace}/{pod.pod_ref.name}"
                use = Use(accelerator.memory_used, accelerator.duty_cycle)
                uses[key] = uses[key] + use if key in uses else use
    return uses
