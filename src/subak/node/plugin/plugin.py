"""The device plugin of one node, put together."""

from __future__ import annotations

import asyncio
from pathlib import Path

from subak.model import manifest
from subak.node.plugin.gate import Gate, Judge, Known, Refused
from subak.node.plugin.podresources import SOCKET, PodResources
from subak.node.plugin.registration import DIRECTORY, LOOK, Registration
from subak.node.plugin.service import Service
from subak.node.plugin.slots import Slots, count
from tinykube.client import Client
from tinykube.resource import PODS
from tinykube.status import ApiError


class Plugin:
    """Gives containers their cards where the container runtime does not ask.

    The slots' folders are in `directory`, under the same path on the host.  `plugins` and `pod_resources` are where
    kubelet has its sockets.
    """

    def __init__(
        self,
        judge: Judge,
        pods: Known,
        client: Client,
        refused: Refused,
        directory: Path,
        plugins: Path = DIRECTORY,
        pod_resources: Path = SOCKET,
    ) -> None:
        self.resources = PodResources(pod_resources)
        self._judge = judge
        self._client = client
        self._slots = Slots(directory)
        gate = Gate(self._slots, judge, self.resources, pods, self._find, refused)
        self._registration = Registration(Service(self._slots, gate, lambda: judge.machine), plugins)

    @property
    def problem(self) -> str:
        """Why kubelet does not know of the plugin; empty if it does."""
        return self._registration.problem

    async def run(self) -> None:
        """Serve kubelet until cancelled, as soon as the node has cards.  Raises OSError if no slot can be made."""
        while not self._judge.machine.devices:  # else a container could get a slot without the driver
            await asyncio.sleep(LOOK)
        self._slots.prepare(count(self._judge.machine.devices))
        await self._registration.run()

    async def _find(self, namespace: str, name: str) -> manifest.Pod | None:
        try:
            return await self._client.get(PODS, name, namespace, type=manifest.Pod)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
