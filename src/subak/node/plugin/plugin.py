"""The device plugin of one node, put together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from subak.model import manifest
from subak.node.counters import Counters
from subak.node.plugin.gate import Gate, Judge, Known, Refused
from subak.node.plugin.podresources import SOCKET, Holder, NoAnswer, PodResources
from subak.node.plugin.reconciliation import Asking, Difference, differences, unguarded
from subak.node.plugin.registration import DIRECTORY, LOOK, Registration
from subak.node.plugin.service import Service
from subak.node.plugin.slots import Slots, count
from tinykube.client import Client
from tinykube.resource import PODS
from tinykube.status import ApiError

PERIOD = 2.0
"""Seconds between two looks at what kubelet says."""

Evict = Callable[[manifest.Pod, str], None]
"""Removes a pod whose container runs without its limits, and says why."""

log = logging.getLogger(__name__)


class Plugin:
    """Gives containers their cards where the container runtime does not ask.

    The slots' folders are in `directory`, under the same path on the host.  `plugins` and `pod_resources` are where
    kubelet has its sockets.  `counters` get to know about how many containers kubelet and we disagree.
    """

    def __init__(
        self,
        judge: Judge,
        pods: Known,
        client: Client,
        asking: Asking,
        refused: Refused,
        evict: Evict,
        counters: Counters,
        directory: Path,
        plugins: Path = DIRECTORY,
        pod_resources: Path = SOCKET,
    ) -> None:
        self.resources = PodResources(pod_resources)
        self._judge = judge
        self._pods = pods
        self._client = client
        self._asking = asking
        self._evict = evict
        self._counters = counters
        self._evicted: set[str] = set()
        self._doubtful: set[Difference] = set()
        self._told: set[Difference] = set()
        self._slots = Slots(directory)
        self._gate = Gate(self._slots, judge, self.resources, pods, self._find, refused)
        self._registration = Registration(Service(self._slots, self._gate, lambda: judge.machine), plugins)

    @property
    def problem(self) -> str:
        """Why kubelet does not know of the plugin; empty if it does."""
        return self._registration.problem

    async def run(self) -> None:
        """Serve kubelet until cancelled, as soon as the node has cards.  Raises OSError if no slot can be made."""
        while not self._judge.machine.devices:  # else a container could get a slot without the driver
            await asyncio.sleep(LOOK)
        self._slots.prepare(count(self._judge.machine.devices))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._registration.run())
            group.create_task(self._compare())

    async def _compare(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            try:
                self.compared(await self.resources.containers())
            except NoAnswer as error:
                self._counters.differences = None
                log.debug("%s", error)

    def compared(self, holders: Sequence[Holder]) -> None:
        """Compare what we know with what kubelet says, and do what is to be done about it."""
        free = list(unguarded(self._pods, holders, self._asking))
        for each in free:
            if each.pod.metadata.uid not in self._evicted:
                self._evict(each.pod, str(each))
        self._evicted = {each.pod.metadata.uid for each in free}
        doubtful = set(differences(self._slots.owners, holders, self._pods.get))
        for slot in (each.slot for each in doubtful if each.over):
            self._gate.allocated(slot)
        doubtful = {each for each in doubtful if not each.over}
        lasting = doubtful & self._doubtful  # pods come and go while kubelet answers
        for difference in lasting - self._told:
            log.warning("%s", difference)
        self._doubtful, self._told = doubtful, lasting
        self._counters.differences = len(free) + len(lasting)

    async def _find(self, namespace: str, name: str) -> manifest.Pod | None:
        try:
            return await self._client.get(PODS, name, namespace, type=manifest.Pod)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
