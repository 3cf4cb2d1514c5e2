"""The pods of this node, as the agent's own watch knows them.

Who creates a container asks here whose it is: without a request to the API server, so that nothing has to wait for
one.  The watch may be a moment behind the container runtime; `wait` bridges that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

from subak.model import manifest
from tinykube.client import Client
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import PODS

Listener = Callable[[str, manifest.Pod], None]
"""Gets ADDED, MODIFIED or DELETED, and the pod as it is now, or was last."""


class Pods:
    """All pods that are bound to a node, by their UID.

    The container runtime knows a static pod by another one (`guard`).  It stands in an annotation of the pod's mirror,
    but anybody can write that on a pod, and would take the place of another.
    """

    def __init__(self, client: Client, node: str) -> None:
        self.reflector = Reflector(client, PODS, manifest.Pod, self._on_event, fields=f"spec.nodeName={node}")
        self._pods: dict[str, manifest.Pod] = {}
        self._listeners: list[Listener] = []
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[manifest.Pod]:
        return iter(tuple(self._pods.values()))

    @property
    def synced(self) -> asyncio.Event:
        """Set as soon as all pods are known that there were at the start."""
        return self.reflector.synced

    def listen(self, listener: Listener) -> None:
        """Tell of every change from now on."""
        self._listeners.append(listener)

    def get(self, uid: str) -> manifest.Pod | None:
        """The pod; None if it is not known, or gone."""
        return self._pods.get(uid)

    async def wait(self, uid: str, seconds: float) -> manifest.Pod | None:
        """The pod as soon as it is known; None if it is not known within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while uid not in self._pods:
                    self._news.clear()
                    await self._news.wait()
        return self._pods.get(uid)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self.reflector.run()

    def _on_event(self, type: str, pod: manifest.Pod) -> None:
        uid = pod.metadata.uid
        if type == DELETED:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
            self._news.set()
        for listener in self._listeners:
            listener(type, pod)
