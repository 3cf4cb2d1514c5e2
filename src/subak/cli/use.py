"""What tenants really use of their cards, beside what they have booked.

Our agents tell it, each for its node; the API server passes the question on to the agent's pod.  Where none runs, as in
`subak up`, the node may report it in kubelet's Summary API.  Many kubelets do not report accelerators, and some users
may ask neither: then the use is unknown, which is not the same as zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from subak.dialects import mark
from subak.model import manifest
from subak.model.manifest import Lean
from subak.node.monitor.use import NodeUse
from subak.node.usage import Use, Uses
from tinykube.client import Client
from tinykube.codec import BadAnswer, decode
from tinykube.resource import NODES, PODS
from tinykube.status import ApiError

AGENT = {"app.kubernetes.io/name": "subak", "app.kubernetes.io/component": "agent"}
"""The labels of our agents' pods (deploy/manifests/agent.yaml)."""
ALLOW = "an administrator can allow it: kubectl create rolebinding NAME -n subak-system --role=subak-use-viewer ..."

AT_ONCE = 16
PATIENCE = 3.0
"""Seconds to wait for a node's answer: a node that is down must not delay the others."""
MOST_NODES = 200
"""No more nodes are asked, at one request each; users can name the nodes that they want."""
MOST_NAMED = 5

Row = tuple[tuple[str, str], Use]
"""A card's UUID and a pod, and what a container of the pod uses of the card."""


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


@dataclass(frozen=True, slots=True)
class Reported:
    """What the pods of nodes use, and why that is not known of some nodes, by their names."""

    uses: Uses
    silent: Mapping[str, str] = field(default_factory=dict)

    def complaints(self) -> list[str]:
        """A sentence for each reason, with the nodes that have it."""
        nodes: dict[str, list[str]] = {}
        for node, why in sorted(self.silent.items()):
            nodes.setdefault(why, []).append(node)
        return [f"what is used on {_listed(names)} is not known: {why}" for why, names in nodes.items()]


def agents(pods: Iterable[manifest.Pod]) -> dict[str, str]:
    """The name of our agent's pod on each node that has one."""
    return {
        pod.spec.node_name: pod.name
        for pod in pods
        if pod.namespace == mark.NAMESPACE and AGENT.items() <= pod.labels.items() and not pod.finished
    }


async def of_nodes(client: Client, names: Collection[str], agents: Mapping[str, str] | None = None) -> Reported:
    """What the pods of these nodes use, as far as their agents tell it, or the nodes themselves."""
    if len(names) > MOST_NODES:
        return Reported({}, dict.fromkeys(names, f"more than {MOST_NODES} nodes are not asked; name some of them"))
    gate, known = asyncio.Semaphore(AT_ONCE), agents or {}

    async def ask(name: str) -> list[Row] | str:
        async with gate:
            if name in known:
                return await _of_agent(client, known[name])
            return await _of_kubelet(client, name)

    uses: dict[tuple[str, str], Use] = {}
    silent: dict[str, str] = {}
    for name, answer in zip(names, await asyncio.gather(*map(ask, names)), strict=True):
        if isinstance(answer, str):
            silent[name] = answer
            continue
        for key, use in answer:
            uses[key] = uses[key] + use if key in uses else use
    return Reported(uses, silent)


async def _of_agent(client: Client, pod: str) -> list[Row] | str:
    """What an agent says; a text if it does not answer."""
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await client.request("GET", f"{PODS.path(mark.NAMESPACE, pod)}/proxy/use")
        return [
            ((each.card, f"{each.namespace}/{each.pod}"), Use(each.memory_used_bytes, each.time_used_percent))
            for each in decode(NodeUse, answer.body).containers
            if each.memory_used_bytes is not None
        ]
    except ApiError as error:
        if error.code == 403:
            return f"you may not ask the agents; {ALLOW}"
        return f"agent {pod} does not answer: {error.message}"
    except BadAnswer:
        return f"the answer of agent {pod} cannot be read: is it of another version?"
    except TimeoutError:
        return f"agent {pod} did not answer within {PATIENCE:.0f} s"


async def _of_kubelet(client: Client, node: str) -> list[Row]:
    """What a node without an agent says; nothing if it is missing, forbidden, silent, or has no summary."""
    try:
        async with asyncio.timeout(PATIENCE):
            answer = await client.request("GET", f"{NODES.path(name=node)}/proxy/stats/summary")
        summary = decode(Summary, answer.body)
    except (ApiError, BadAnswer, TimeoutError):
        return []
    return [
        ((card.id, f"{pod.pod_ref.namespace}/{pod.pod_ref.name}"), Use(card.memory_used, card.duty_cycle))
        for pod in summary.pods or ()
        for container in pod.containers or ()
        for card in container.accelerators or ()
    ]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return f"{', '.join(names[:MOST_NAMED])} and {more} more nodes" if more > 0 else ", ".join(names)
