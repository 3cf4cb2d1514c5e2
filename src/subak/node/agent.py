"""The agent: the program of a node, put together.

    source ── cards ──> arbiter ◄── pods, by the agent's own watch
                           │  ▲
      advertiser ◄─────────┘  └── injector: the container runtime, or kubelet, asks for each container
    (Node, Device object)
                      heartbeat (Lease): while all of that works, pods may be bound here

Nothing is said of the cards before containers can be given them.  Each part goes on whatever happens to the others, and
/readyz says what is wrong.  When the agent is asked to end, it takes back its Lease and what it said of the cards;
running containers keep what they have.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from subak import __version__
from subak.dialects import Dialect, mark
from subak.dialects.amounts import published
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.node import others
from subak.node.advertisement import make
from subak.node.advertiser import Advertiser
from subak.node.arbiter import Arbiter
from subak.node.counters import Counters
from subak.node.discovery import Source, carried_on
from subak.node.heartbeat import Heartbeat
from subak.node.host import Host
from subak.node.injection import Way
from subak.node.machine import Machine
from subak.node.outbox import Outbox
from subak.node.parts import Parts
from subak.node.pods import Pods
from subak.node.reports import Reports, in_use
from subak.node.window import Window
from tinykube.client import Client
from tinykube.events import Recorder
from tinykube.reflector import DELETED, Reflector

NAME = "subak-agent"
"""The component in events, the field manager of what is written, and the role in deploy/manifests."""

TENDING = 5.0
"""Seconds between two looks at what nobody tells of."""

SETTLING, LAG = 15.0, 1.0
"""Seconds that pods may take which are bound when the agent is asked to end, and that the watch may be behind."""

FAREWELL = 10.0
"""Seconds that taking leave may take."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says: the node's name, the way of injection, and where to serve HTTP."""

    node: str
    way: str = mark.NRI
    host: str = ""
    port: int = 9394


class Agent:
    """The agent of one node.  `host` is where what is mounted into containers lies."""

    def __init__(
        self,
        client: Client,
        settings: Settings,
        interpreter: Interpreter,
        source: Source,
        host: Host | None,
        way: Way,
    ) -> None:
        self.client = client
        self.host = host
        self.known = asyncio.Event()
        self.settings = settings
        self.interpreter = interpreter
        self.registry = CollectorRegistry()
        self.counters = Counters()
        self.recorder = Recorder(client, NAME, settings.node)
        self.pods = Pods(client, settings.node)
        self.arbiter = Arbiter(_bare(settings.node), interpreter, host)
        reports = Reports(client, self._may_be_locked)
        self.outbox = Outbox(client, self.recorder, reports, self.arbiter.serving, self.counters)
        self.taken: Mapping[Dialect, str] = {}
        self.use: Callable[[], Any] = dict
        self._source = source
        self._machine: Machine | None = None
        self._notes: tuple[str, ...] = ()
        self._looked = False
        self._leaving = False
        self._told: set[str] = set()
        self.injector = way(self)
        self.advertiser = Advertiser(client, settings.node, self.refresh)
        self.heartbeat = Heartbeat(client, settings.node, self._able, self.refresh)
        self.window = Window(self, settings.host, settings.port)
        self.parts: dict[str, Callable[[], Awaitable[None]]] = {
            "watch of pods": self.pods.run,
            "discovery": self._discover,
            "advertisement": self.advertiser.run,
            "injection": self.injector.run,
            "lease": self.heartbeat.run,
            "events": self.recorder.run,
            "accounts": self._tend,
        }
        """What runs, by name; more may be added before `run`."""
        self._running = Parts(self.parts)
        self.pods.listen(self._on_pod)

    async def run(self, stopped: asyncio.Event) -> None:
        """Work until `stopped` is set.  Raises CannotListen if the address cannot be used."""
        await self.window.start()
        work = asyncio.create_task(self._running.run())
        stop = asyncio.create_task(stopped.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            await self._settle(work)
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, self.outbox.stop(), return_exceptions=True)
            await self._leave()
            await self.window.stop()

    async def _settle(self, work: asyncio.Future[None]) -> None:
        """Serve pods that are bound already, while no more are: kubelet fails them for good if nobody answers."""
        self._leaving = True
        if work.done() or self.settings.way != mark.PLUGIN:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLING):
                await self.heartbeat.end()
                await asyncio.sleep(LAG)
                while self.injector.owes():
                    await asyncio.sleep(0.1)

    async def _leave(self) -> None:
        """Take back what was said; the Lease first, so that nobody is bound here any more."""
        try:
            async with asyncio.timeout(FAREWELL):
                await self.heartbeat.end()
                await self.advertiser.withdraw()
        except TimeoutError:
            log.warning("node %s: what this agent said stays there, since no answer came", self.settings.node)

    # What is known

    def served_by_others(self) -> frozenset[str]:
        """The names of dialects that vendors' own agents serve here."""
        return frozenset(dialect.name for dialect in self.taken)

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All watches."""
        return self.pods.reflector, self.advertiser.nodes, self.advertiser.devices.reflector

    def readiness(self) -> Mapping[str, Any]:
        """What /readyz says."""
        node = self.settings.node
        missing = [str(each) for each in self.reflectors if not each.synced.is_set()]
        missing += [] if self._looked else ["cards"]
        idle = self._looked and not self.arbiter.machine.devices
        trouble = [
            *self._running.failures.values(),
            *self.injector.trouble,
            *self.advertiser.trouble,
            *self.heartbeat.trouble,
        ]
        ready = not missing and (idle or (self.injector.working and self.advertiser.said))
        return {
            "ready": ready,
            "version": __version__,
            "node": node,
            "injection": self.settings.way,
            "cards": [
                {"id": each.id, "model": each.model, "memory_bytes": each.memory_bytes, "healthy": each.healthy}
                for each in self.arbiter.machine.devices
            ],
            "left_to_others": [others.sentence(each, why, node) for each, why in self.taken.items()],
            "notes": list(self._notes),
            "waiting_for": missing,
            "trouble": trouble,
        }

    def _able(self) -> bool:
        """Whether pods may be bound here."""
        return (
            not self._leaving
            and self.injector.working
            and bool(self.arbiter.machine.devices)
            and self.pods.synced.is_set()
        )

    def _may_be_locked(self, key: str) -> bool:
        """Whether the node carries this lock, as far as is known."""
        node = self.advertiser.node
        return node is None or key in node.annotations

    # What happens

    async def _discover(self) -> None:
        while True:
            found = await asyncio.to_thread(self._source.look)
            for note in found.notes:
                if note not in self._notes:
                    log.warning("%s", note)
            self._notes = found.notes
            machine = carried_on(self._machine, found.machine, not self.arbiter.held()) or _bare(self.settings.node)
            if machine != self._machine:
                self._tell_health(machine)
                self._machine = machine
            self._looked = True
            self.refresh()
            await self._source.change()

    def _tell_health(self, machine: Machine) -> None:
        before = {each.id: each.healthy for each in (self._machine.devices if self._machine else ())}
        for each in machine.devices:
            if each.id not in before:
                log.info("card %s: %s, %d MiB", each.id, each.model, each.memory_bytes >> 20)
            if before.get(each.id, True) != each.healthy:
                level, word = (logging.INFO, "healthy again") if each.healthy else (logging.WARNING, "broken or gone")
                log.log(level, "card %s is %s", each.id, word)

    def refresh(self) -> None:
        """Let arbiter and node follow what is known now."""
        machine, node = self._machine, self.advertiser.node
        if machine is None or not self.advertiser.seen:
            return
        if node is not None:
            self._yield_to_others(machine, node)
        mine = others.without(machine, self.taken)
        if mine != self.arbiter.machine:
            self.arbiter.change(mine)
        if self.pods.synced.is_set():
            for pod in self.pods:
                self._follow(pod)
            self.known.set()
        self.heartbeat.look()
        if self.heartbeat.beating or not mine.devices:
            way = self.settings.way if not self.taken else ""
            free = in_use(mine, self.arbiter.free())
            self.advertiser.want(make(mine, self.arbiter.held(), self._asked(), way, free))

    def _yield_to_others(self, machine: Machine, node: manifest.Node) -> None:
        taken = others.serving(machine, node, self.advertiser.devices.found, self.advertiser.ours)
        if taken.keys() != self.taken.keys():
            for dialect, evidence in taken.items():
                log.warning("%s", others.sentence(dialect, evidence, node.name))
            if not taken:
                log.info("node %s: nobody else serves its cards any more", node.name)
        self.taken = taken

    def _on_pod(self, type: str, pod: manifest.Pod) -> None:
        if self.arbiter.machine.devices or self.arbiter.holds(pod):  # a record means nothing before cards are known
            self.injector.follow(pod)
        if type == DELETED or pod.finished:
            self._told.discard(pod.metadata.uid)
            self.outbox.forget(pod)
        self.refresh()

    def _follow(self, pod: manifest.Pod) -> None:
        """Let a running pod have what it holds, and say so once."""
        if pod.finished:
            return
        if not self.arbiter.holds(pod) and self.arbiter.machine.devices:
            self.injector.follow(pod)
        uid = pod.metadata.uid
        if pod.started and self.arbiter.holds(pod) and uid not in self._told:
            self._told.add(uid)
            self.outbox.served(pod)

    async def _tend(self) -> None:
        """Look again now and then: containers end, and ways of injection come and go, without an event for us."""
        while True:
            await asyncio.sleep(TENDING)
            self.refresh()

    def _asked(self) -> Counter[str]:
        """What pods that hold cards ask for of each resource, as kubelet counts it."""
        total: Counter[str] = Counter()
        for pod in self.pods:
            if self.arbiter.holds(pod):
                total.update(_requests(pod))
        return total


def _bare(node: str) -> Machine:
    """A machine without cards."""
    return Machine(node, "", (), ())


def _requests(pod: manifest.Pod) -> Counter[str]:
    """The extended resources of a pod: what its containers ask for together, or the largest init container."""
    early = len(pod.spec.init_containers or ())
    together: Counter[str] = Counter()
    for container in pod.containers[early:]:
        together.update(_whole(container))
    for container in pod.containers[:early]:
        together |= _whole(container)
    return together


def _whole(container: manifest.Container) -> Counter[str]:
    return Counter({name: published(container.requests, name) for name in container.requests if "/" in name})
