"""The controller: the scheduler's service on a real cluster, with replicas of which one decides.

    every replica      window (health, metrics), watches, the ledger         always, so that it can take over at once
                       companions (admission)
    the leader         decides and writes                                    while it holds the Lease

A replica that has just got the Lease first makes sure that it has seen all that the last leader wrote; then it
decides.  When it loses the Lease it ends at once.  When it is asked to end it lets the bindings finish that are under
way, and gives the Lease back, so that another goes on within seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter
from subak.scheduler import configuration, volumes
from subak.scheduler.batch_configuration import USUAL, Source
from subak.scheduler.configuration import Published
from subak.scheduler.extender.extender import Extender
from subak.scheduler.extender.listener import listening
from subak.scheduler.fence import Fenced
from subak.scheduler.messages import GroupsMade
from subak.scheduler.metrics import Metrics
from subak.scheduler.observed import Observed
from subak.scheduler.rivals import CONTROLLER_LEASES, CONTROLLERS, Rivals
from subak.scheduler.served import NAMES, OWN_LEASES, Served
from subak.scheduler.service import NAME, Service
from subak.scheduler.window import Window
from tinykube.client import Client
from tinykube.lease import Elector
from tinykube.reflector import Reflector
from tinykube.status import ApiError
from tinykube.transport import Transport
from tinykube.window import CannotListen

ROLE = "subak-controller"
"""The ClusterRole and the Role in deploy/manifests."""

RETIREMENT = 8.0
"""Seconds that bindings under way may take when we are asked to end."""
FLUSH = 1.0
"""Seconds that events may take then."""

log = logging.getLogger(__name__)


class LostLease(Exception):
    """Another replica may lead now: this one must end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says.  `foreign_leases` are Leases of other schedulers, by the name that they serve."""

    names: tuple[str, ...] = NAMES
    elect: bool = True
    lease_namespace: str = configuration.NAMESPACE
    lease_name: str = "subak-controller"
    identity: str = "subak"
    host: str = ""
    port: int = 9440
    config: Config | None = None
    foreign_leases: Mapping[str, str] = field(default_factory=dict)
    volume_timeout: float = volumes.TIMEOUT
    extender: tuple[str, int] | None = None
    batch: Source = USUAL

    def leases(self) -> dict[str, str]:
        """The Leases that tell whether one of our names has a scheduler of its own."""
        known = {**OWN_LEASES, **self.foreign_leases}
        return {name: known[name] for name in self.served if name in known}

    @property
    def served(self) -> tuple[str, ...]:
        """The names of pods that we place by ourselves."""
        return () if self.extender else self.names


class Companion(Protocol):
    """What runs beside the scheduler on every replica, as admission does.  `trouble` is empty while all is well."""

    @property
    def trouble(self) -> str:
        """Why it does not do all of its work."""

    async def run(self) -> None:
        """Work until cancelled."""

    def lead(self) -> None:
        """This replica leads from now on."""

    def names_changed(self) -> None:
        """Other scheduler names are served than before."""


Companions = Callable[[Client, Interpreter, Served, Service], Sequence[Companion]]
"""Makes what runs beside the scheduler, as soon as the device config is known."""


def alone(client: Client, interpreter: Interpreter, served: Served, service: Service) -> Sequence[Companion]:
    """Nothing runs beside the scheduler."""
    return ()


class Controller:
    """One replica."""

    def __init__(self, transport: Transport, settings: Settings, companions: Companions = alone) -> None:
        self.settings = settings
        self.companions: Sequence[Companion] = ()
        self._make_companions = companions
        self.served = Served(settings.served)
        self.service: Service | None = None
        self.metrics: Metrics | None = None
        self.window = Window(self, settings.host, settings.port)
        self._observed = Observed(transport, ROLE)
        self._client = Client(self._observed, NAME)
        self._elector = Elector(self._client, settings.lease_namespace, settings.lease_name, settings.identity)
        fenced = Fenced(self._observed, self._elector.left)
        self._writing = Client(fenced, NAME) if settings.elect else self._client
        self._elected: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._rivals = Rivals(self._client, settings.leases(), self._names_taken)
        self._volcano = Rivals(self._client, CONTROLLER_LEASES, self._volcano_seen, CONTROLLERS)

    @property
    def trouble(self) -> list[str]:
        """What does not work as it should."""
        found = [each.trouble for each in self.companions]
        if self.service is not None:
            found.append(self.service.batch_configuration.trouble)
        return [trouble for trouble in found if trouble]

    @property
    def leader(self) -> str:
        """Who leads, as last seen."""
        return self._elector.holder if self.settings.elect else self.settings.identity

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All watches."""
        if self.service is None:
            return ()
        service, volcano = self.service, self._volcano.reflectors
        return (*service.feed.reflectors, *service.batch_configuration.reflectors, *self._rivals.reflectors, *volcano)

    async def run(self, stopped: asyncio.Event) -> None:
        """Work until `stopped` is set.  Raises LostLease, BadConfig, and CannotListen if the address cannot be used."""
        await self.window.start()
        stop = asyncio.create_task(stopped.wait())
        work = asyncio.create_task(self._work())
        try:
            await asyncio.wait({stop, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            await self._retire()
        finally:
            for task in (stop, work):
                task.cancel()
            await asyncio.gather(stop, work, return_exceptions=True)
            await self.window.stop()
        if self.settings.elect and self._elector.left():
            await self._elector.release()

    async def _work(self) -> None:
        config = self.settings.config or await configuration.awaited(self._client)
        interpreter = Interpreter(config)
        service = self._service(interpreter)
        self.companions = self._make_companions(self._client, interpreter, self.served, service)
        watches = (self._rivals.run(), self._volcano.run())
        parts = [self._serve(service), *watches, self._hold_lease(), self._lead(service)]
        if self.settings.extender is not None:
            parts.append(self._extend(service, *self.settings.extender))
        tasks = [asyncio.create_task(part) for part in (*parts, *(each.run() for each in self.companions))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _service(self, interpreter: Interpreter) -> Service:
        settings = self.settings
        self.service = Service(
            self._writing,
            interpreter,
            self.served,
            standby=True,
            volume_timeout=settings.volume_timeout,
            makes_queues=settings.extender is None,
            batch=settings.batch,
        )
        self.metrics = Metrics(self.service, self._observed)
        return self.service

    async def _serve(self, service: Service) -> None:
        """Keep up with the cluster.  A first list that is made after the election need not be made again for it."""
        if self.settings.elect:
            await self._elector.tried.wait()
        await service.run()

    async def _hold_lease(self) -> None:
        """Get the Lease and keep it.  Raises LostLease."""
        if self.settings.elect:
            await self._elector.acquire()
        self._elected.set_result(asyncio.get_running_loop().time())
        if self.settings.elect:
            await self._elector.keep()
            lease = f"{self.settings.lease_namespace}/{self.settings.lease_name}"
            raise LostLease(f"lease {lease} is lost; it is held by {self.leader or 'nobody'}")

    async def _lead(self, service: Service) -> None:
        """Decide, once elected and as soon as all is known that was written before that."""
        elected_at = await self._elected
        await self._rivals.complete()
        await self._volcano.complete()
        await service.ready.wait()
        await service.feed.pods.refresh(elected_at)
        service.lead()
        for companion in self.companions:
            companion.lead()
        log.info("this replica leads", extra={"identity": self.settings.identity})
        if self.settings.config is not None:
            await self._publish(self.settings.config)

    async def _extend(self, service: Service, host: str, port: int) -> None:
        """Answer a kube-scheduler.  Raises CannotListen."""
        try:
            async with listening(Extender(service), host, port):
                await asyncio.Event().wait()
        except OSError as error:
            raise CannotListen(error.strerror) from None

    async def _publish(self, config: Config) -> None:
        """Tell the cluster the config that was given to us: other programs must read pods and nodes as we do."""
        published = Published(self._writing, config)
        with suppress(ApiError, OSError, TimeoutError):  # `run` tries again, and says what is wrong
            await published.start()
        await published.run()

    def _names_taken(self, taken: Mapping[str, str]) -> None:
        before = self.served.foreign.keys()
        self.served.leave(taken)
        if self.service is not None and self.served.foreign.keys() != before:
            self.service.names_changed()
            for companion in self.companions:
                companion.names_changed()

    def _volcano_seen(self, living: Mapping[str, str]) -> None:
        """Volcano's controllers live, or no more."""
        if self.service is not None:
            self.service.tell(GroupsMade(bool(living)))

    async def _retire(self) -> None:
        """Let bindings and events finish that are under way."""
        if self.service is not None:
            try:
                async with asyncio.timeout(RETIREMENT):
                    await self.service.retire()
            except TimeoutError:
                log.warning("some bindings are still under way; whoever leads next finds out about them")
            await self.service.recorder.flush(FLUSH)
