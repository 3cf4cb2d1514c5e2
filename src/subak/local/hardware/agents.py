"""The vendors' agents on all local nodes: what happens to a pod's cards between binding and its end.

    bound pod ── its annotations ──> placement ── the node's own ledger ──> injections for its containers
                                                       │ no room, no record, unknown cards
                                                       └──> Refusal: the pod is not started

When a pod has its cards, the agents say so as the vendors' do, see `reports` and `plugins`.  Which pod is served is
known here, by its UID, so that nothing has to be guessed from sizes and times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from subak.dialects import Dialect, Injection, isolation
from subak.dialects.interpreter import Interpreter
from subak.local.hardware import plugins
from subak.local.hardware.library import empty
from subak.local.hardware.reports import Reports
from subak.local.runtime.spec import File
from subak.model import manifest
from subak.model.device import Device
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Refusal
from subak.node import library, usage
from subak.node.host import Host
from subak.node.ledger import Ledger, Overcommitted
from subak.node.machine import Machine
from subak.node.turns import NoTurns
from subak.node.usage import Use
from tinykube.client import Client
from tinykube.resource import PODS

NO_UNIFIED_MEMORY = (
    "real cards: /dev/nvidia-uvm is not there, so CUDA will not start in containers: "
    "run `nvidia-modprobe -u -c 0`, and then start subak up again"
)

log = logging.getLogger(__name__)


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
        self._interpreter = interpreter
        self._machines = {machine.name: machine for machine in machines}
        self._ledgers = {name: Ledger(_truth(each, interpreter)) for name, each in self._machines.items()}
        self._spoken = {
            name: {dialect.name: dialect for dialect in each.speaks} for name, each in self._machines.items()
        }
        self._hosts = {
            name: Host(directory, None if each.real else empty())
            for name, each in self._machines.items()
            if directory is not None
        }
        self._reports = Reports(client)

    async def restore(self) -> None:
        """Book what the pods hold that ran here before a restart; to be called before the first pod is started."""
        pods = (await self._client.list(PODS, type=manifest.Pod, strict=False)).items
        for pod in pods:
            ledger = self._ledgers.get(pod.spec.node_name)
            if ledger is None or pod.status.phase != "Running":
                continue
            try:
                placement = self._interpreter.placement(pod, ledger.node)
            except ValueError as error:
                log.warning("pod %s on node %s: %s; it holds nothing", pod.key, ledger.node.name, error)
                continue
            if placement.grants:
                ledger.restore(pod.metadata.uid, pod.key, placement)
        for name in {pod.spec.node_name for pod in pods} & self._ledgers.keys():
            await self._tell_use(self._ledgers[name])

    async def allocate(self, pod: manifest.Pod) -> Sequence[Injection]:
        """What each container gets.  Raises Refusal if the node cannot honour what the pod's annotations record."""
        ledger = self._ledgers.get(pod.spec.node_name)
        if ledger is None:
            raise Refusal(
                "spec.nodeName", pod.spec.node_name, f"node {pod.spec.node_name!r} is no node of this cluster"
            )
        known = ledger.holdings.get(pod.metadata.uid)
        if known is not None:
            return self._injections(pod, known.placement, ledger.node)
        if not self._interpreter.speaking(pod):
            return [Injection() for _ in pod.containers]
        try:
            placement = self._recorded(pod, ledger.node)
            _take(ledger, pod, placement)
            injections = self._injections(pod, placement, ledger.node)
        except Refusal:
            ledger.give_back(pod.metadata.uid)
            speaking = (dialect.name for dialect in self._interpreter.speaking(pod))
            await self._reports.failed(pod, self._serving(pod, speaking))
            raise
        await self._reports.served(pod, self._serving(pod, (grant.dialect for grant in placement.grants)))
        await self._tell_use(ledger)
        return injections

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container begins with clean books."""
        host = self._hosts.get(pod.spec.node_name)
        if host is not None:
            host.forget_use(pod, pod.containers[position])

    async def release(self, pod: manifest.Pod) -> None:
        """The pod has ended."""
        ledger = self._ledgers.get(pod.spec.node_name)
        if ledger is not None and ledger.give_back(pod.metadata.uid) is not None:
            host = self._hosts.get(ledger.node.name)
            if host is not None:
                host.remove(pod)
            await self._tell_use(ledger)

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        """What the containers' regions say."""
        ledger = self._ledgers.get(pod.spec.node_name)
        holding = None if ledger is None else ledger.holdings.get(pod.metadata.uid)
        host = self._hosts.get(pod.spec.node_name)
        if ledger is None or holding is None or host is None:
            return {}
        found: dict[str, list[tuple[Device, Use]]] = {}
        for grant in holding.placement.grants:
            for container in (pod.containers[position] for position in grant.containers):
                uses = usage.read(host.region(pod, container), time.monotonic_ns())
                ids = dict.fromkeys(share.id for share in grant.shares)  # a card once, however many instances of it
                cards = [ledger.node.device(id) for id in ids if id in uses]
                found.setdefault(container.name, []).extend((card, uses[card.id]) for card in cards if card)
        return found

    def files(self, node: str) -> Sequence[File]:
        """The libraries and directories of the vendor's image."""
        return [file for dialect in self._spoken.get(node, {}).values() for file in plugins.files(dialect)]

    def notes(self) -> list[str]:
        """What a user of real cards should know."""
        real = [machine for machine in self._machines.values() if machine.real]
        notes = [NO_UNIFIED_MEMORY for machine in real if _lacks_unified_memory(machine)]
        try:
            library.find()
        except library.NoLibrary as error:
            what = f"containers with a part of a card do not start, as no limit would hold: {error}"
            notes += [f"real cards: {what}" for _ in real]
        return notes

    def simulated(self, node: str) -> bool:
        """Whether the node's cards are only described."""
        machine = self._machines.get(node)
        return machine is None or not machine.real

    def _recorded(self, pod: manifest.Pod, node: Node) -> Placement:
        """What the pod's annotations give it.  Raises Refusal unless that is all it asks for, in words spoken here."""
        try:
            placement = self._interpreter.placement(pod, node)
        except Refusal:
            raise
        except ValueError as error:
            raise Refusal("metadata.annotations", "", f"the record of its cards cannot be read: {error}") from None
        served = {(grant.dialect, position) for grant in placement.grants for position in grant.containers}
        for claim in self._interpreter.request(pod).claims:
            for position in claim.containers:
                if (claim.dialect, position) not in served:
                    container = pod.containers[position]
                    raise Refusal(
                        f"{pod.fields[position]}.resources",
                        ", ".join(f"{name}={amount}" for name, amount in container.requests.items()),
                        f"container {container.name} asks for cards ({claim.dialect}), but no annotation of the pod "
                        f"records any: whoever bound it to node {node.name} chose no card; let Subak place it",
                    )
        for dialect, position in sorted(served):
            if dialect not in self._spoken[node.name]:
                spoken = ", ".join(sorted(self._spoken[node.name]))
                message = f"node {node.name} has no plugin for {dialect}; it speaks {spoken}"
                raise Refusal(f"{pod.fields[position]}.resources", dialect, message)
        return placement

    def _injections(self, pod: manifest.Pod, placement: Placement, node: Node) -> list[Injection]:
        injections = self._interpreter.injections(pod, placement, node)
        host = self._hosts.get(node.name)
        try:
            for position, (container, injection) in enumerate(zip(pod.containers, injections, strict=True)):
                injection.mounts += isolation.guard(pod, position, injection)
                if host is not None:
                    injection.mounts = [host.mount(each, pod, container) for each in injection.mounts]
        except NoTurns as error:
            raise Refusal("spec.nodeName", node.name, f"no limit would hold: {error}") from None
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
            message = f"no limit would hold: what is mounted into its containers cannot be made ready: {what}"
            raise Refusal("spec.nodeName", node.name, message) from None
        device_files = self._machines[node.name].device_files
        for grant in placement.grants if device_files else ():
            for position in grant.containers:
                _show(injections[position], [share.id for share in grant.shares], device_files)
        return injections

    def _serving(self, pod: manifest.Pod, dialects: Iterable[str]) -> list[Dialect]:
        """Those of the dialects that the node speaks."""
        spoken = self._spoken[pod.spec.node_name]
        return [spoken[name] for name in dict.fromkeys(dialects) if name in spoken]

    async def _tell_use(self, ledger: Ledger) -> None:
        """Let plugins tell which cards are free now."""
        machine = self._machines[ledger.node.name]

        def told() -> dict[str, str]:
            free = {each.index for each in ledger.free()}
            cards = [each for each in machine.devices if each.index in free]
            return {key: text for each in telling for key, text in plugins.in_use(each, machine.devices, cards).items()}

        telling = [each for each in machine.speaks if plugins.tells_use(each)]
        if telling:
            await self._reports.use(machine.name, told)


def _truth(machine: Machine, interpreter: Interpreter) -> Node:
    """The node as schedulers see it, but with the health that the cards really have: some plugins do not tell it."""
    node, _ = machine.digest(interpreter)
    health = {each.index: each.healthy for each in machine.devices}
    return replace(
        node, devices=tuple(msgspec.structs.replace(each, healthy=health[each.index]) for each in node.devices)
    )


def _lacks_unified_memory(machine: Machine) -> bool:
    """Whether a device node is missing that CUDA needs, and that only a program outside of containers can bring.

    The driver makes it for the first program that uses CUDA: after a boot there may have been none.
    """
    files = {path for each in machine.device_files.values() for path in each}
    return "/dev/nvidiactl" in files and "/dev/nvidia-uvm" not in files


def _show(injection: Injection, cards: Sequence[str], device_files: Mapping[str, Sequence[str]]) -> None:
    """Let a container see real cards: CUDA finds them by UUID, and opens the driver's device nodes."""
    seen = filter(None, injection.env.get(isolation.CUDA_CARDS, "").split(","))
    env = isolation.shown(dict.fromkeys((*seen, *cards)))
    injection.add(Injection(env, devices=[path for id in cards for path in device_files.get(id, ())]))


def _take(ledger: Ledger, pod: manifest.Pod, placement: Placement) -> None:
    try:
        ledger.take(pod.metadata.uid, pod.key, placement)
    except Overcommitted as error:
        held = [share.id for grant in placement.grants for share in grant.shares]
        raise Refusal("metadata.annotations", ", ".join(dict.fromkeys(held)), str(error)) from None
