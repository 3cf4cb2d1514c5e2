"""A whole cluster in one process: API server, scheduler, kubelet and nodes, put together.

    async with LocalCluster(machines) as cluster:
        await cluster.client.create(PODS, pod, "default")

All parts speak to the API server by plain calls, each as a different user; `endpoint.start` opens it to kubectl.  At
the end all containers are ended and all files are removed, except for a state directory if one is given.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from subak.admission import endings, records
from subak.admission.owned import Owned
from subak.admission.records import Writers
from subak.admission.review import review
from subak.dialects import mark
from subak.dialects.interpreter import Interpreter
from subak.local import custom, volcano
from subak.local.hardware.agents import Agents
from subak.local.hardware.nodes import Nodes
from subak.local.kubeconfig import NAME
from subak.local.kubelet.kubelet import Kubelet
from subak.local.runtime import capability
from subak.local.runtime.namespaces import Namespaces
from subak.local.runtime.none import Nothing
from subak.local.runtime.spec import Runtime
from subak.local.runtime.stand_in import StandIns
from subak.local.state import BESIDE, IDENTITY, MACHINE, not_served, set_aside
from subak.node import trees
from subak.node.machine import Machine
from subak.scheduler import configuration, served
from subak.scheduler.configuration import Published
from subak.scheduler.service import Service
from tinykube import private
from tinykube.client import Client
from tinykube.server import renewal
from tinykube.server.http import Listener
from tinykube.server.kinds import CONFIG_MAP
from tinykube.server.server import Server
from tinykube.server.sqlite import open_store
from tinykube.server.state import DATABASE
from tinykube.server.store import Store
from tinykube.server.tls import KeptIdentity
from tinykube.server.users import Acting
from tinykube.user import AUTHENTICATED, NODES, User

SCHEDULER = User("system:subak-scheduler")
AGENTS = User("system:subak-agents")
KUBELET = User("system:subak-kubelet", (NODES, AUTHENTICATED))
"""Users of the API server, as in a cluster of many machines; the administrator of the kubeconfig is another."""

WRITERS = Writers(frozenset({SCHEDULER.name, AGENTS.name}))
"""Users who may write records of allocations."""

RuntimeName = Literal["process", "stand-in", "none"]


class LocalCluster:
    """A cluster on this machine, running inside `async with`.  `notes` are for the user who starts it,
    `lacks` too: how containers are confined less here than elsewhere, which only matters if the cluster stays.

    `on_authority` is called when the certificate authority was renewed: kubeconfigs should be written anew.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        interpreter: Interpreter | None = None,
        *,
        state: Path | None = None,
        runtime: RuntimeName = "process",
        stand_in: bool = False,
        hide: Sequence[Path] = (),
    ) -> None:
        """`state` is the directory that keeps all data, if any; `hide` are directories that containers must not see."""
        self.machines = machines
        self.interpreter = interpreter or Interpreter()
        self.notes: list[str] = []
        self.lacks: list[str] = []
        self.failed: asyncio.Future[None]
        self.on_authority: Callable[[], None] = lambda: None
        self._state = state
        self._runtime: RuntimeName = runtime
        self._stand_in = stand_in
        self._hide = hide
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self.failed = asyncio.get_running_loop().create_future()
        self.server = Server(
            self._store(),
            name=NAME,
            hooks=[partial(review, self.interpreter)],
            guards=[partial(records.guard, Owned.by(self.interpreter), WRITERS), endings.guard],
        )
        kept = None if self._state is None else self._state / IDENTITY
        identity = KeptIdentity(kept, NAME)
        self.endpoint = Listener(self.server, identity.current)
        self._stack.push_async_callback(self.endpoint.stop)
        self.client = Client(self.server, NAME)
        directory = self._directory()
        host = None if self._runtime == "none" else directory / "host"
        self.agents = Agents(self.client_of(AGENTS), self.interpreter, self.machines, host)
        self.notes += self.agents.notes()
        nodes = Nodes(self.client_of(KUBELET), self.machines)
        self._stack.push_async_callback(nodes.stop)
        self.kubelet = await self._kubelet(directory)
        self.scheduler = Service(
            self.client_of(SCHEDULER), self.interpreter, served.on_one_machine, marked=mark.everywhere
        )
        config = Published(self.client_of(SCHEDULER), self.interpreter.config)
        await config.start()
        await volcano.prepare(self.client)
        started = await nodes.start()
        if started.removed:
            self.notes.append(
                f"nodes of an earlier run, on which nothing was, are removed: {', '.join(started.removed)}"
            )
        if started.left:
            self.notes.append(
                f"nodes of an earlier run stay NotReady with their pods until a --hardware file describes them again: "
                f"{', '.join(started.left)}; if none ever does: subak delete node {' '.join(started.left)}"
            )
        for name in started.away:
            self.notes.append(
                f"node {name} of an earlier run stays NotReady with its pods until its cards are found again; "
                f"if they never are: subak delete node {name}"
            )
        await self.agents.restore()
        renewing = renewal.run(identity, self.endpoint, lambda: self.on_authority())
        for part in (config.run(), nodes.run(), self.kubelet.run(), self.scheduler.run(), renewing):
            self._run(part)
        ready = asyncio.gather(self.kubelet.synced.wait(), self.scheduler.ready.wait())
        await asyncio.wait((ready, self.failed), return_when=asyncio.FIRST_COMPLETED)
        if self.failed.done():
            ready.cancel()
            await self.failed

    def client_of(self, user: User) -> Client:
        """A client that the API server knows as this user; `client` is the administrator's."""
        return Client(Acting(self.server, user), NAME)

    def _directory(self) -> Path:
        """The directory for volumes, logs and the files of agents, without files of earlier agents."""
        if self._state is not None:
            directory = self._state.absolute() / MACHINE
            private.directory(directory)
            trees.discard(directory / "host")
            return directory
        directory = Path(tempfile.mkdtemp(prefix="subak-"))
        self._stack.callback(trees.discard, directory)
        return directory

    def _store(self) -> Store:
        if self._state is None:
            return Store(custom=custom.kinds())
        store, journal = open_store(self._state, custom=custom.kinds(), beside=BESIDE)
        self._stack.callback(journal.close)
        database = self._state / DATABASE
        self.notes += set_aside(database, journal.aside)
        self.notes += not_served(database, journal.resources, {kind.resource for kind in store.kinds})
        if store.is_aside(CONFIG_MAP, configuration.NAMESPACE, configuration.NAME):
            lost = "the device config of the last start is lost with it"
            self.notes.append(f"{lost}: the default one is in force, or that of --device-config")
        return store

    async def _kubelet(self, directory: Path) -> Kubelet:
        runtime, stand_in = await self._runtimes()
        self._stack.push_async_callback(runtime.close)
        if stand_in is not None and stand_in is not runtime:
            self._stack.push_async_callback(stand_in.close)
        names = [machine.name for machine in self.machines]
        processes = self._runtime != "none"
        client = self.client_of(KUBELET)
        kubelet = Kubelet(client, runtime, self.agents, names, directory, stand_in=stand_in, processes=processes)
        self.server.kubelet = kubelet
        return kubelet

    async def _runtimes(self) -> tuple[Runtime, Runtime | None]:
        """The runtimes for containers with and without a command; a command never runs unconfined."""
        if self._runtime == "none":
            return Nothing(), Nothing()
        if self._runtime == "process":
            obstacle = await capability.obstacle()
            if not obstacle:
                confined = Namespaces(self._hide if self._state is None else (*self._hide, self._state))
                self.lacks = [each for each in (capability.remark(), *confined.notes()) if each]
                return confined, StandIns(confined) if self._stand_in else None
            self.notes.append(f"containers only wait, their commands are not run: {obstacle}")
        waiting = StandIns()
        return waiting, waiting

    def _run(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a part until the end.  A failure is a bug, and becomes the exception of `failed`."""
        task = asyncio.create_task(part)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and not self.failed.done():
                self.failed.set_exception(task.exception() or RuntimeError("a part of the cluster ended by itself"))

        task.add_done_callback(ended)
        self._stack.push_async_callback(_cancelled, task)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
