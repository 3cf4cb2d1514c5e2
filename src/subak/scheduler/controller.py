"""The controller: the scheduler's service on a real cluster, with replicas of which one decides.

    every replica      window (health, metrics), watches, the ledger         always, so that it can take over at once
    the leader         decides and writes                                    while it holds the Lease

A replica that has just got the Lease first makes sure that it has seen all that the last leader wrote; then it
decides.  When it loses the Lease it ends at once.  When it is asked to end it lets the bindings finish that are under
way, and gives the Lease back, so that another goes on within seconds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from subak.dialects.config import Config
from subak.dialects.interpreter import Interpreter
from subak.scheduler import configuration
from subak.scheduler.configuration import Published
from subak.scheduler.fence import Fenced
from subak.scheduler.metrics import Metrics
from subak.scheduler.observed import Observed
from subak.scheduler.rivals import Rivals
from subak.scheduler.served import NAMES, Served
from subak.scheduler.service import NAME, Service
from subak.scheduler.window import Window
from tinykube.client import Client
from tinykube.lease import Elector
from tinykube.reflector import Reflector
from tinykube.status import ApiError
from tinykube.transport import Transport

ROLE = "subak-controller"
"""The ClusterRole and the Role in deploy/manifests."""

PAUSE, LONGEST_PAUSE = 1.0, 30.0
RETIREMENT = 8.0
"""Seconds that bindings under way may take when we are asked to end."""

log = logging.getLogger(__name__)


class LostLease(Exception):
    """Another replica may lead now: this one must end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says.  `foreign_leases` are the Leases by which other schedulers of our names are known."""

    names: tuple[str, ...] = NAMES
    elect: bool = True
    lease_namespace: str = configuration.NAMESPACE
    lease_name: str = "subak-controller"
    identity: str = "subak"
    host: str = ""
    port: int = 9440
    config: Config | None = None
    foreign_leases: Mapping[str, str] = field(default_factory=dict)

    def leases(self) -> dict[str, str]:
        """The Lease that tells whether a name has a scheduler of its own: called as the name, unless said otherwise."""
        return {name: self.foreign_leases.get(name, name) for name in self.names if name != NAME}


class Controller:
    """One replica."""

    def __init__(self, transport: Transport, settings: Settings) -> None:
        self.settings = settings
        self.served = Served(settings.names)
        self.service: Service | None = None
        self.metrics: Metrics | None = None
        self.window = Window(self, settings.host, settings.port)
        self._observed = Observed(transport, ROLE)
        self._client = Client(self._observed, NAME)
        self._elector = Elector(self._client, settings.lease_namespace, settings.lease_name, settings.identity)
        self._elected: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._rivals = Rivals(self._client, settings.leases(), self._names_taken)

    @property
    def leader(self) -> str:
        """Who leads, as last seen."""
        return self._elector.holder if self.settings.elect else self.settings.identity

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All watches."""
        return () if self.service is None else (*self.service.feed.reflectors, *self._rivals.reflectors)

    async def run(self, stopped: asyncio.Event) -> None:
        """Work until `stopped` is set.  Raises LostLease, and CannotListen if the address cannot be used."""
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

    async def _work(self) -> None:
        config = self.settings.config or await self._config()
        service = self._service(Interpreter(config))
        # What every replica does, leader or not, belongs in this list: the admission webhook too, once it is built.
        parts = (self._serve(service), self._rivals.run(), self._hold_lease(), self._lead(service))
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _service(self, interpreter: Interpreter) -> Service:
        writing = Client(Fenced(self._observed, self._elector.left), NAME) if self.settings.elect else self._client
        self.service = Service(writing, interpreter, self.served, standby=True)
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
        await service.ready.wait()
        await service.feed.pods.refresh(elected_at)
        service.lead()
        log.info("this replica leads", extra={"identity": self.settings.identity})
        if self.settings.config is not None:  # other programs must read pods and nodes as we do
            await Published(self._client, self.settings.config).run()

    async def _config(self) -> Config:
        """The device config of the cluster, as soon as the API server gives it."""
        pause = PAUSE
        while True:
            try:
                return await configuration.in_force(self._client)
            except (ApiError, OSError, TimeoutError) as error:
                log.warning("the API server does not tell the device config: %s; next try in %.0f s", error, pause)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _names_taken(self, taken: Mapping[str, str]) -> None:
        self.served.leave(taken)
        if self.service is not None:
            self.service.names_changed()

    async def _retire(self) -> None:
        """Let bindings finish that are under way, then give the Lease back."""
        if self.service is not None:
            try:
                async with asyncio.timeout(RETIREMENT):
                    await self.service.retire()
            except TimeoutError:
                log.warning("some bindings are still under way; whoever leads next finds out about them")
        if self.settings.elect and self._elector.left():
            await self._elector.release()
