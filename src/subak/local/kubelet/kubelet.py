"""The kubelet of all local nodes: one watch of pods, a worker for each.

    kubelet = Kubelet(client, runtime, devices, nodes=["gpu-1"], directory=Path(...))
    await kubelet.run()          # until cancelled; then the runtime ends the containers

The API server asks it for logs, for programs to run in containers, and for the use of cards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from subak.local.kubelet import logs, sandbox
from subak.local.kubelet.cleaning import clean
from subak.local.kubelet.context import Context
from subak.local.kubelet.devices import Devices
from subak.local.kubelet.lookup import Lookup
from subak.local.kubelet.pod import Metadata, Seen
from subak.local.kubelet.sandbox import Sandbox
from subak.local.kubelet.services import Service
from subak.local.kubelet.summary import summary
from subak.local.kubelet.worker import Worker
from subak.local.runtime.spec import Runtime, StartError
from subak.model import manifest
from subak.node import trees
from tinykube.client import Client
from tinykube.events import Recorder
from tinykube.reflector import DELETED, Reflector
from tinykube.resource import NODES, PODS, SERVICES
from tinykube.server import errors
from tinykube.server.kubelet import LogOptions, Session, Unstarted
from tinykube.status import ApiError

BOUND = "spec.nodeName!="


class Kubelet:
    """Runs the pods of `nodes`, and serves the API server as `tinykube.server.kubelet.Kubelet`.

    `stand_in` is the runtime for containers without a command; without it they wait, and their status says why.
    `processes` is False for a runtime that starts nothing at all.
    """

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        devices: Devices,
        nodes: Collection[str],
        directory: Path,
        *,
        stand_in: Runtime | None = None,
        processes: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._names = frozenset(nodes)
        self._workers: dict[str, Worker] = {}
        self._first: list[Seen] | None = []
        self._pods = Reflector(client, PODS, Seen, self._on_pod, self._on_synced, fields=BOUND)
        self._nodes = Reflector(client, NODES, manifest.Node, _ignore)
        self._services = Reflector(client, SERVICES, Service, _ignore)
        self._context = Context(
            client,
            runtime,
            stand_in,
            devices,
            directory,
            Recorder(client, component="kubelet"),
            Lookup(client),
            processes,
            clock,
            self._nodes.objects,
            self._services.objects,
        )

    def __len__(self) -> int:
        """How many pods it has, including those that have ended."""
        return len(self._workers)

    @property
    def synced(self) -> asyncio.Event:
        """Set once the pods that exist at the start are known."""
        return self._pods.synced

    async def run(self) -> None:
        """Run pods until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for watched in (self._nodes, self._services):
                    group.create_task(watched.run())
                group.create_task(self._context.recorder.run())
                await self._nodes.synced.wait()
                await self._services.synced.wait()
                group.create_task(self._pods.run())
        finally:
            for worker in self._workers.values():
                worker.close()
            await self._context.close()

    async def logs(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """The output of a container."""
        container = _container(pod, options.container)
        attempt = logs.attempt(pod, container, options.previous)
        worker = self._workers.get(pod["metadata"]["uid"])
        process = worker.process(container) if worker and not options.previous else None

        def ended() -> bool:
            return process is None or worker is None or worker.process(container) is not process

        metadata = msgspec.convert(pod["metadata"], Metadata)
        path = Sandbox(self._context.directory, metadata).logs / container / f"{attempt}.log"
        return logs.read(path, options, ended)

    async def execute(
        self, pod: dict[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Session:
        """Start a program in a running container."""
        container = _container(pod, container)
        worker = self._workers.get(pod["metadata"]["uid"])
        process = worker.process(container) if worker else None
        if process is None:
            raise errors.internal(f'unable to upgrade connection: container not found ("{container}")')
        try:
            return await process.execute(command, stdin=stdin, tty=tty)
        except StartError as error:
            return Unstarted(errors.internal(f"error executing command in container: {error.message}"))

    async def summary(self, node: str) -> dict[str, Any]:
        """What the pods of a node use of its cards."""
        pods = [worker.pod() for worker in self._workers.values() if worker.node == node]
        return await asyncio.to_thread(summary, node, pods, self._context.devices)

    def _on_synced(self) -> None:
        """Begin with the pods of the first list: those that ran before come first, then by creation."""
        if self._first is None:
            return
        first, self._first = self._first, None
        for seen in sorted(first, key=_seniority):
            self._welcome(seen)
        if self._context.processes:
            # Listed now, before a later pod gets a directory.
            left = sandbox.strangers(self._context.directory, {seen.metadata.uid for seen in first})
            self._context.spawn(clean(partial(trees.remove, *left)))

    def _on_pod(self, type: str, seen: Seen) -> None:
        worker = self._workers.get(seen.metadata.uid)
        if worker is not None:
            if type == DELETED:
                worker.vanish()
            else:
                worker.update(seen)
        elif type != DELETED:
            if self._first is not None:
                self._first.append(seen)
            else:
                self._welcome(seen)

    def _welcome(self, seen: Seen) -> None:
        node = seen.node
        if node in self._names:
            uid = seen.metadata.uid
            worker = self._workers[uid] = Worker(self._context, node, seen, self._forget)
            worker.poke()

    def _forget(self, uid: str) -> None:
        self._workers.pop(uid, None)


def _ignore(_: str, __: object) -> None:
    """Do nothing: the reflector's objects are enough."""


def _seniority(seen: Seen) -> tuple[bool, str, str]:
    started = b'"startTime"' in bytes(seen.status)
    return not started, seen.metadata.creation_timestamp, seen.metadata.name


def _container(pod: dict[str, Any], name: str) -> str:
    """The name of the container to use; the only one if none is named."""
    spec, title = pod["spec"], pod["metadata"]["name"]
    names = [each["name"] for each in spec.get("containers") or ()]
    if not name:
        if len(names) == 1:
            return str(names[0])
        message = f"a container name must be specified for pod {title}, choose one of: [{' '.join(names)}]"
        raise ApiError(400, "BadRequest", message)
    if name not in (*names, *(each["name"] for each in spec.get("initContainers") or ())):
        raise ApiError(400, "BadRequest", f"container {name} is not valid for pod {title}")
    return name
