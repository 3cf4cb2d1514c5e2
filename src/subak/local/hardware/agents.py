"""The vendors' agents on all local nodes: each node's arbiter decides, and they say what came of it.

When a pod has its cards, the agents say so as the vendors' do, see `reports`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from subak.dialects import Injection
from subak.dialects.interpreter import Interpreter
from subak.local.hardware import driver
from subak.local.hardware.library import empty
from subak.local.runtime.machine import search_path
from subak.local.runtime.spec import File
from subak.model import manifest
from subak.model.device import Device
from subak.model.mount import Mount
from subak.model.reason import NotReady, Refusal
from subak.node import nvml
from subak.node.arbiter import Arbiter
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.reports import Reports
from subak.node.usage import Use
from tinykube.client import Client
from tinykube.resource import PODS

TOOL = "nvidia-smi"


class Agents:
    """The agents of these machines; follows `local.kubelet.devices.Devices`.

    `directory` takes the place of the host's folders from which a vendor's plugin mounts files into containers: those
    belong to the machine, and an ordinary user could not write there.  Without it nothing is written to disk, which is
    enough for containers that have no process.
    """

    def __init__(
        self, client: Client, interpreter: Interpreter, machines: Iterable[Machine], directory: Path | None = None
    ) -> None:
        self._client = client
        self._directory = directory
        self._arbiters: dict[str, Arbiter] = {}
        self._notes: list[str] = []
        self._covered: list[str] = [] if directory is None else driver.of_this_machine()
        for each in machines:
            host = None if directory is None else Host(directory, simulated=not each.real)
            machine = each
            if directory is not None:
                machine = _with_tool(each) if each.real else self._with_driver(each, directory)
            self._arbiters[each.name] = Arbiter(machine, interpreter, host)
        self._reports = Reports(client)

    async def restore(self) -> None:
        """Book what the pods hold that ran here before a restart; to be called before the first pod is started.

        Their containers have ended with the run before, and what was made for these is thrown away.
        """
        if self._directory is not None:
            Host(self._directory).sweep(())
        pods = (await self._client.list(PODS, type=manifest.Pod, strict=False)).items
        for pod in pods:
            arbiter = self._arbiters.get(pod.spec.node_name)
            if arbiter is not None and pod.status.phase == "Running":
                arbiter.restore(pod)
        for name in {pod.spec.node_name for pod in pods} & self._arbiters.keys():
            await self._tell_use(self._arbiters[name])

    async def allocate(self, pod: manifest.Pod) -> Sequence[Injection]:
        """What each container gets.  Raises Refusal if the node cannot honour what the pod's annotations record.

        To be asked again after NotReady: of that, the agents say nothing.
        """
        arbiter = self._arbiters.get(pod.spec.node_name)
        if arbiter is None:
            raise Refusal(
                "spec.nodeName", pod.spec.node_name, f"node {pod.spec.node_name!r} is no node of this cluster"
            )
        known = arbiter.holds(pod)
        try:
            injections = arbiter.admit(pod)
        except NotReady:
            raise
        except Refusal:
            if not known:
                await self._reports.failed(pod, arbiter.serving(pod))
            raise
        if arbiter.holds(pod) and not known:
            await self._reports.served(pod, arbiter.serving(pod))
            await self._tell_use(arbiter)
        return injections

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container begins with clean books."""
        if pod.spec.node_name in self._arbiters:
            self._arbiters[pod.spec.node_name].starting(pod, position)

    async def release(self, pod: manifest.Pod) -> None:
        """The pod has ended."""
        arbiter = self._arbiters.get(pod.spec.node_name)
        if arbiter is not None and arbiter.release(pod):
            await self._tell_use(arbiter)

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        """What the containers' regions say."""
        arbiter = self._arbiters.get(pod.spec.node_name)
        return {} if arbiter is None else arbiter.use(pod)

    def files(self, node: str) -> Sequence[File]:
        """The libraries and directories of the vendor's image."""
        arbiter = self._arbiters.get(node)
        agents = [] if arbiter is None else [each.agent for each in arbiter.machine.speaks]
        return [
            *(File(path, directory=True, mode=0o755) for each in agents for path in each.directories),
            *(File(path, empty(), mode=0o755) for each in agents for path in each.libraries),
        ]

    def notes(self) -> list[str]:
        """What a user should know of the cards."""
        machines = [arbiter.machine for arbiter in self._arbiters.values()]
        return self._notes + [note for machine in machines if machine.real for note in nvml.obstacles(machine)]

    def simulated(self, node: str) -> bool:
        """Whether the node's cards are only described."""
        arbiter = self._arbiters.get(node)
        return arbiter is None or not arbiter.machine.real

    def _with_driver(self, machine: Machine, directory: Path) -> Machine:
        """The machine with the driver of its simulated cards.  Without it pods run, and their programs find no card."""
        try:
            return driver.installed(directory / "driver", machine, self._covered)
        except driver.NoDriver as error:
            note = f"simulated cards: programs in containers do not find them: {error}"
        if note not in self._notes:
            self._notes.append(note)
        return machine

    async def _tell_use(self, arbiter: Arbiter) -> None:
        """Let agents tell which cards are free now."""
        await self._reports.use(arbiter.machine, arbiter.free)


def _with_tool(machine: Machine) -> Machine:
    """A machine with real cards, and its nvidia-smi where containers look for programs, as NVIDIA's toolkit has it.

    Where the driver lies in a folder of its own, only the PATH of the machine's users leads there.
    """
    found = shutil.which(TOOL)
    if found is None or shutil.which(TOOL, path=search_path()):
        return machine
    mount = Mount(f"/usr/bin/{TOOL}", os.path.realpath(found), read_only=True)
    return replace(machine, driver=(*machine.driver, mount))
