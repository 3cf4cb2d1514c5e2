"""The two ways in which containers get their cards, as the agent sees them.

    ByRuntime   the container runtime asks about each container (NRI), and `guard` answers
    ByKubelet   kubelet asks, by its device-plugin API, where the runtime does not (`plugin`)

Neither begins before the agent knows the node's pods and cards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.reason import Refusal
from subak.model.variables import SLOT
from subak.node.arbiter import Arbiter
from subak.node.counters import Counters
from subak.node.guard import EXEMPT, Exemptions, Guard
from subak.node.host import Host
from subak.node.nri.plugin import SOCKET
from subak.node.nri.plugin import Plugin as NriPlugin
from subak.node.outbox import Outbox
from subak.node.pods import Pods
from tinykube.client import Client


class Node(Protocol):
    """What a way of injection knows of its node."""

    client: Client
    interpreter: Interpreter
    arbiter: Arbiter
    pods: Pods
    outbox: Outbox
    counters: Counters
    host: Host | None
    known: asyncio.Event
    """Set when pods and cards are known."""

    def refresh(self) -> None:
        """Something has changed."""

    def served_by_others(self) -> frozenset[str]:
        """The names of dialects that vendors' own agents serve here."""


class Injector(Protocol):
    """A way in which containers get their cards."""

    @property
    def working(self) -> bool:
        """Whether containers can be given their cards now."""

    @property
    def trouble(self) -> Sequence[str]:
        """What does not work as it should."""

    def owes(self) -> bool:
        """Whether pods that are bound here would be lost if nobody answered now."""

    def follow(self, pod: manifest.Pod) -> None:
        """A pod has changed: book what it holds if it runs; if it is over, take its cards back when they are free."""

    async def run(self) -> None:
        """Work until cancelled."""


Way = Callable[[Node], Injector]


class ByRuntime:
    """The container runtime asks about each container, and starts none while nobody answers.

    Containers of these `namespaces` see cards as they like.
    """

    def __init__(self, node: Node, socket: Path = SOCKET, namespaces: Collection[str] = EXEMPT) -> None:
        self._known = node.known
        self._socket = socket
        exempt = Exemptions(namespaces, node.served_by_others)
        self._guard = Guard(node.arbiter, node.interpreter, node.pods, node.outbox, host=node.host, exempt=exempt)
        self._plugin = NriPlugin(self._guard, socket, lambda connected: node.refresh())

    @property
    def working(self) -> bool:
        return self._plugin.connected

    @property
    def trouble(self) -> Sequence[str]:
        if self.working or not self._known.is_set():
            return ()
        return (
            f"the container runtime does not ask about containers: no connection at {self._socket}; "
            "is it up, and is NRI on there (containerd: disable = false)?",
        )

    def owes(self) -> bool:
        return False

    def follow(self, pod: manifest.Pod) -> None:
        self._guard.follow(pod)

    async def run(self) -> None:
        await self._known.wait()
        await self._plugin.run()


class ByKubelet:
    """Kubelet asks for a slot, by its device-plugin API, and fails pods for good while nobody answers."""

    def __init__(self, node: Node, directory: Path) -> None:
        self._node = node
        self._directory = directory
        self._problem: Callable[[], str] = lambda: "kubelet has not been told of the device plugin yet"

    @property
    def working(self) -> bool:
        return not self._problem()

    @property
    def trouble(self) -> Sequence[str]:
        problem = self._problem()
        return (problem,) if problem and self._node.known.is_set() else ()

    def owes(self) -> bool:
        return any(not pod.status.start_time and SLOT in pod.resource_names() for pod in self._node.pods)

    def follow(self, pod: manifest.Pod) -> None:
        arbiter, interpreter = self._node.arbiter, self._node.interpreter
        if pod.finished or self._node.pods.get(pod.metadata.uid) is None:
            arbiter.release(pod)
        elif not arbiter.holds(pod) and (pod.started or self._was_served(pod)):
            spoken = {each.name for each in interpreter.speaking(pod)}
            if not spoken <= self._node.served_by_others():
                arbiter.restore(pod)

    def _was_served(self, pod: manifest.Pod) -> bool:
        """Whether an agent before this one let a container of the pod start, as one that prepares the others."""
        host = self._node.host
        return host is not None and any(host.limited(pod, each) for each in pod.containers)

    async def run(self) -> None:
        await self._node.known.wait()
        if self._node.host is not None:
            self._node.host.sweep({pod.metadata.uid for pod in self._node.pods})
        from subak.node.plugin.plugin import Plugin  # slow to load, for grpc is

        node = self._node
        plugin = Plugin(
            node.arbiter,
            node.pods,
            node.client,
            self._asking,
            self._refused,
            node.outbox.evict,
            node.counters,
            self._directory,
        )
        self._problem = lambda: plugin.problem
        await plugin.run()

    def _asking(self, pod: manifest.Pod) -> list[int]:
        """The containers that ask for cards of ours, and that this agent has given no limits."""
        node, host = self._node, self._node.host
        mine = {each.name for each in node.interpreter.speaking(pod)} - node.served_by_others()
        if not mine:
            return []
        try:
            claims = [each for each in node.interpreter.request(pod).claims if each.dialect in mine]
            positions = sorted({position for claim in claims for position in claim.containers})
        except Refusal:
            positions = list(range(len(pod.containers)))  # nobody could give it limits
        return [each for each in positions if host is None or not host.limited(pod, pod.containers[each])]

    def _refused(self, pod: manifest.Pod, container: str, refusal: Refusal) -> None:
        self._node.outbox.refused(pod, container, refusal.message, refusal.cause)
