"""The device plugin of one node, put together."""

from __future__ import annotations

from pathlib import Path

from subak.model import manifest
from subak.node.machine import Machine
from subak.node.plugin.gate import Gate, Judge, Known, Refused
from subak.node.plugin.podresources import SOCKET, PodResources
from subak.node.plugin.registration import DIRECTORY, Registration
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
        machine: Machine,
        judge: Judge,
        pods: Known,
        client: Client,
        refused: Refused,
        directory: Path,
        plugins: Path = DIRECTORY,
        pod_resources: Path = SOCKET,
    ) -> None:
        self.resources = PodResources(pod_resources)
        self._slots = Slots(directory, count(machine.devices))

        async def find(namespace: str, name: str) -> manifest.Pod | None:
            try:
                return await client.get(PODS, name, namespace, type=manifest.Pod)
            except ApiError as error:
                if error.code == 404:
                    return None
                raise

        given = machine.driver, machine.driver_env
        gate = Gate(machine.name, self._slots, judge, self.resources, pods, find, refused, *given)
        self._registration = Registration(Service(self._slots, gate, *given), plugins)

    @property
    def problem(self) -> str:
        """Why kubelet does not know of the plugin; empty if it does."""
        return self._registration.problem

    async def run(self) -> None:
        """Serve kubelet until cancelled.  Raises OSError if there is no place for the slots."""
        self._slots.prepare()
        await self._registration.run()
