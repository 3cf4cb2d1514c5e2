"""What all workers share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subak.local.kubelet.admission import Account
from subak.local.kubelet.devices import Devices
from subak.local.kubelet.lookup import Lookup
from subak.local.kubelet.services import Service, variables
from subak.local.runtime.spec import Runtime
from subak.model import manifest
from tinykube.client import Client
from tinykube.events import Recorder

STARTS_AT_ONCE = 16

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Context:
    """The tools of all workers, and what they know of the nodes and services.

    `stand_in` runs containers without a command.  Without `processes`, nothing is written to disk and nothing is
    probed, because there is no process that could notice.
    """

    client: Client
    runtime: Runtime
    stand_in: Runtime | None
    devices: Devices
    directory: Path
    recorder: Recorder
    lookup: Lookup
    processes: bool = True
    clock: Callable[[], float] = time.time
    nodes: Mapping[str, manifest.Node] = field(default_factory=dict)
    services: Mapping[str, Service] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    starts: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTS_AT_ONCE))
    orphans: dict[str, set[str]] = field(default_factory=dict)
    """By node, the UIDs of pods that were removed from the API server before their containers ended."""
    _waiting: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def account(self, node: str) -> Account:
        """The books of a node."""
        return self.accounts.setdefault(node, Account())

    def allocatable(self, node: str) -> manifest.Amounts:
        """What a node has for pods; empty if the node is unknown."""
        known = self.nodes.get(node)
        return known.allocatable if known else {}

    def orphaned(self, node: str, uid: str) -> None:
        """Note that a pod was removed from the API server before it ended."""
        self.orphans.setdefault(node, set()).add(uid)

    def orphan_ended(self, node: str, uid: str) -> None:
        """Note that such a pod has ended, and wake the pods that wait for its place."""
        self.orphans.get(node, set()).discard(uid)
        for look in self._waiting.pop(node, ()):
            look()

    def wait_for_orphans(self, node: str, look: Callable[[], None]) -> bool:
        """Call `look` when one of the node's orphans has ended; False if there is none."""
        if not self.orphans.get(node):
            return False
        self._waiting.setdefault(node, []).append(look)
        return True

    def service_variables(self, namespace: str, links: bool) -> dict[str, str]:
        """The variables with services for a pod of the namespace."""
        return variables(self.services.values(), namespace, links)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background.  A failure is a bug, and is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel all background tasks."""
        tasks: Iterable[asyncio.Task[None]] = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.lookup.close()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the kubelet failed", exc_info=task.exception())
