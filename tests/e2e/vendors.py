"""Stand-ins for the vendors' agents, written from what is known of them and not with our code.

Kubelet does not tell a device plugin which pod it serves, only how many devices it wants.  `Kubelet` admits the pods of
a node one by one, in an order that nobody can foresee, and asks the node's agent for each container:

    HAMi           serves the pod that the node lock names, else the first one that is `allocating`
    Volcano vGPU   serves the pod with the lowest `vgpu-time`
    Volcano share  serves the pod of the same size with the lowest `predicate-time`
    Koordinator    its hook in the container runtime knows the pod
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tinykube.client import Client
from tinykube.resource import NODES, PODS

BATCH = 0.1
"""Seconds between two looks of kubelet: pods that come meanwhile are there at once."""

Pod = dict[str, Any]
Cards = list[str]


class Agent(Protocol):
    """A vendor's agent on one node."""

    resource: str

    async def allocate(self, client: Client, node: str, number: int, admitted: Pod) -> tuple[str, Cards]:
        """The pod that it served, and the cards that it gave; only a hook in the runtime looks at `admitted`."""


async def annotate(client: Client, pod: Pod, annotations: Mapping[str, str]) -> None:
    """Patch a pod as plugins do."""
    metadata = pod["metadata"]
    await client.patch(PODS, metadata["name"], metadata["namespace"], {"metadata": {"annotations": dict(annotations)}})


async def pending(client: Client, node: str) -> list[Pod]:
    """The pods of a node that do not run yet."""
    return (await client.list(PODS, fields=f"spec.nodeName={node},status.phase=Pending")).items


def take_group(text: str, number: int) -> tuple[Cards, str]:
    """The first container's cards in a device string, and what is left of it."""
    groups = text.split(";")
    for place, group in enumerate(groups):
        cards = [piece.split(",")[0] for piece in group.split(":") if "," in piece]
        if cards:
            assert len(cards) == number, f"device number not matched: {text}, {number} asked"
            groups[place] = ""
            return cards, ";".join(groups)
    raise AssertionError(f"nothing is left to allocate in {text}")


@dataclass
class Hami:
    """HAMi's device plugin for NVIDIA cards."""

    resource: str = "nvidia.com/gpu"
    lock: str = "hami.io/mutex.lock"
    to_allocate: str = "hami.io/vgpu-devices-to-allocate"

    async def allocate(self, client: Client, node: str, number: int, admitted: Pod) -> tuple[str, Cards]:
        pod = await self._find(client, node)
        annotations = pod["metadata"]["annotations"]
        cards, rest = take_group(annotations[self.to_allocate], number)
        await annotate(client, pod, {self.to_allocate: rest})
        if "," not in rest:
            await annotate(client, pod, {"hami.io/bind-phase": "success"})
            await client.patch(NODES, node, "", {"metadata": {"annotations": {self.lock: None}}})
        return pod["metadata"]["name"], cards

    async def _find(self, client: Client, node: str) -> Pod:
        lock = ((await client.get(NODES, node))["metadata"].get("annotations") or {}).get(self.lock)
        if lock is not None:
            _, namespace, name = lock.split(",")
            return await client.get(PODS, name, namespace)
        for pod in await pending(client, node):
            annotations = pod["metadata"].get("annotations") or {}
            allocating = annotations.get("hami.io/bind-phase") == "allocating" and "hami.io/bind-time" in annotations
            if allocating and annotations.get("hami.io/vgpu-node") == node:
                return pod
        raise AssertionError(f"no binding pod found on node {node}")


@dataclass
class VolcanoVgpu:
    """Volcano's vGPU plugin."""

    resource: str = "volcano.sh/vgpu-number"

    async def allocate(self, client: Client, node: str, number: int, admitted: Pod) -> tuple[str, Cards]:
        def time(pod: Pod) -> int:
            return int(pod["metadata"]["annotations"]["volcano.sh/vgpu-time"])

        there = (await client.list(PODS)).items
        pod = min(
            (each for each in there if (each["metadata"].get("annotations") or {}).get("volcano.sh/vgpu-node") == node),
            key=time,
        )
        cards, rest = take_group(pod["metadata"]["annotations"]["volcano.sh/devices-to-allocate"], number)
        done = {"volcano.sh/bind-phase": "success"} if "," not in rest else {}
        taken = {"volcano.sh/vgpu-time": str(2**64 - 1)} if done else {}
        await annotate(client, pod, {"volcano.sh/devices-to-allocate": rest, **done, **taken})
        await client.patch(NODES, node, "", {"metadata": {"annotations": {"hamivgpu": None}}})
        return pod["metadata"]["name"], cards


@dataclass
class VolcanoShare:
    """Volcano's plugin for parts of cards, one device for each MiB."""

    resource: str = "volcano.sh/gpu-memory"

    async def allocate(self, client: Client, node: str, number: int, admitted: Pod) -> tuple[str, Cards]:
        waiting = [
            pod
            for pod in await pending(client, node)
            if (pod["metadata"].get("annotations") or {}).get("volcano.sh/gpu-assigned", "false") == "false"
        ]
        waiting.sort(key=lambda pod: int(pod["metadata"]["annotations"]["volcano.sh/predicate-time"]))
        pod = next(each for each in waiting if number in wanted(each, self.resource))
        await annotate(client, pod, {"volcano.sh/gpu-assigned": "true"})
        return pod["metadata"]["name"], pod["metadata"]["annotations"]["volcano.sh/gpu-index"].split(",")


@dataclass
class Koordlet:
    """Koordinator's hook: it reads the record of the pod that the runtime starts."""

    resource: str = "koordinator.sh/gpu-core"

    async def allocate(self, client: Client, node: str, number: int, admitted: Pod) -> tuple[str, Cards]:
        record = json.loads(admitted["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])
        return admitted["metadata"]["name"], [str(each["minor"]) for each in record["gpu"]]


def wanted(pod: Pod, resource: str) -> list[int]:
    """How many devices each container wants, of those that want any."""
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return [int(each[resource].replace("k", "000")) for each in limits if resource in each]


@dataclass
class Kubelet:
    """Admits the pods of a node; `served` are the cards of each pod, `mistaken` pods that got another's."""

    client: Client
    node: str
    agent: Agent
    served: dict[str, list[Cards]] = field(default_factory=dict)
    mistaken: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Admit pods until cancelled."""
        while True:
            await asyncio.sleep(BATCH)
            waiting = [each for each in await pending(self.client, self.node) if _name(each) not in self.served]
            for pod in sorted(waiting, key=_name, reverse=True):
                await self._admit(pod)

    async def _admit(self, pod: Pod) -> None:
        name = _name(pod)
        self.served[name] = []
        for number in wanted(pod, self.agent.resource):
            guessed, cards = await self.agent.allocate(self.client, self.node, number, pod)
            self.served[name].append(cards)
            if guessed != name:
                self.mistaken.append(f"{name} was given the cards of {guessed}")
        await self.client.patch_status(PODS, name, "default", {"phase": "Running"})


def _name(pod: Pod) -> str:
    return str(pod["metadata"]["name"])


@asynccontextmanager
async def kubelets(client: Client, agents: Mapping[str, Agent]) -> AsyncIterator[dict[str, Kubelet]]:
    """A kubelet for each node, with the agent that runs there."""
    made = {node: Kubelet(client, node, agent) for node, agent in agents.items()}
    running = [asyncio.create_task(each.run()) for each in made.values()]
    try:
        yield made
        for each in running:
            if each.done():
                each.result()
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
