"""What the vendors' agents write: that a pod has its cards or cannot have them, and which cards of a node are free.

A pod gets one patch at most, and none if there is nothing to say.  Our agent writes it too: schedulers and monitors of
the vendors read it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from subak.dialects import Dialect, nodelock
from subak.model import manifest
from subak.model.device import Device
from subak.node.machine import Machine
from tinykube.client import Client
from tinykube.resource import NODES, PODS
from tinykube.status import ApiError

LOCK_TRIES = 10

log = logging.getLogger(__name__)


class Reports:
    """Writes for the agents of all nodes.  `locked` spares a look at a node that surely carries no such lock."""

    def __init__(self, client: Client, locked: Callable[[str], bool] = lambda key: True) -> None:
        self._client = client
        self._locked = locked
        self._telling: dict[str, asyncio.Lock] = {}

    async def served(self, pod: manifest.Pod, dialects: Sequence[Dialect]) -> None:
        """The pod has its cards."""
        written = {key: text for each in dialects for key, text in success(each, pod).items()}
        await self._report(pod, dialects, written)

    async def failed(self, pod: manifest.Pod, dialects: Sequence[Dialect]) -> None:
        """The pod was refused."""
        written = {key: text for each in dialects for key, text in failure(each).items()}
        await self._report(pod, dialects, written)

    async def _report(self, pod: manifest.Pod, dialects: Sequence[Dialect], annotations: Mapping[str, str]) -> None:
        """Write on the pod, and release the node.  Whether the pod runs does not depend on it."""
        try:
            await self._annotate(pod, annotations)
            await self._unlock(pod, dialects)
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("pod %s: what came of its cards could not be written: %s", pod.key, error)

    async def use(self, machine: Machine, free: Callable[[], Sequence[Device]]) -> None:
        """Another set of cards is free; `free` gives them when it is their turn to be written."""
        node = machine.name
        async with self._telling.setdefault(node, asyncio.Lock()):
            try:
                if annotations := in_use(machine, free()):
                    await self._client.patch(NODES, node, "", {"metadata": {"annotations": annotations}})
            except (ApiError, OSError, TimeoutError) as error:  # nothing depends on it but how nodes are scored
                log.warning("node %s: its free cards could not be told: %s", node, error)

    async def _annotate(self, pod: manifest.Pod, annotations: Mapping[str, str]) -> None:
        """Write what differs.  A pod that is gone, or whose name another has now, needs no annotations any more."""
        news = {key: text for key, text in annotations.items() if pod.annotations.get(key) != text}
        if not news:
            return
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": news}}
        try:
            await self._client.patch(PODS, pod.name, pod.namespace, body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def _unlock(self, pod: manifest.Pod, dialects: Iterable[Dialect]) -> None:
        """Release the node lock where the vendors' protocol has one."""
        for key in filter(self._locked, {dialect.agent.lock for dialect in dialects} - {""}):
            for _ in range(LOCK_TRIES):
                if await self._unlocked(pod, key):
                    break
            else:
                log.warning("node %s: the lock of pod %s stays until it expires", pod.spec.node_name, pod.key)

    async def _unlocked(self, pod: manifest.Pod, key: str) -> bool:
        """Whether the pod does not hold the lock, after an attempt to remove it.  False: the node has just changed."""
        node = await self._client.get(NODES, pod.spec.node_name)
        metadata = node["metadata"]
        try:
            ours = nodelock.release((metadata.get("annotations") or {}).get(key), pod.key)
        except ValueError as error:
            log.warning("node %s: %s; it is left as it is", pod.spec.node_name, error)
            return True
        if not ours:
            return True
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "annotations": {key: None}}}
        try:
            await self._client.patch(NODES, pod.spec.node_name, "", body)
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        return True


def success(dialect: Dialect, pod: manifest.Pod) -> dict[str, str]:
    """What the agent of a dialect writes on a pod whose containers have their cards.

    HAMi's plugins take the cards out of the list that waits for them and report success; Volcano's and Iluvatar's
    say that the pod is assigned.
    """
    written: dict[str, str] = {}
    for key in sorted(dialect.owned):
        if key.endswith("-to-allocate") and key in pod.annotations:
            written[key] = ";" * len(pod.containers)
        elif key.endswith("/bind-phase"):
            written[key] = "success"
        elif key.endswith("/gpu-assigned"):
            written[key] = "true"
    return written


def failure(dialect: Dialect) -> dict[str, str]:
    """What it writes on a pod that it cannot serve."""
    return {key: "failed" for key in dialect.owned if key.endswith("/bind-phase")}


def in_use(machine: Machine, free: Sequence[Device]) -> dict[str, str]:
    """What a machine's agents write on its node whenever a card is taken or given back."""
    agents = (each.agent for each in machine.speaks)
    return {
        key: text for agent in agents if agent.of_free for key, text in agent.of_free(machine.devices, free).items()
    }


def handshakes(machine: Machine) -> list[str]:
    """The annotations by which the machine's agents show that they live."""
    return [each.agent.handshake for each in machine.speaks if each.agent.handshake]


def reported(now: datetime) -> str:
    """An agent's sign of life, and its answer to the scheduler's `Requesting_<time>`."""
    return f"Reported {now:%Y-%m-%d %H:%M:%S}"
