"""Takes part in HAMi's node lock, for vendors whose agents learn from it which pod they serve.

Pods that need the lock of one node take turns, in the order in which they were decided; pods of other nodes, and pods
that need no lock, do not wait.  A waiting pod is woken when the node changes, when the holder or the pod itself goes,
or when the lock becomes void.  A lock is void at once if its holder is gone, runs, has finished, or is bound elsewhere;
also if its holder waits here for its turn, since then an earlier run took the lock and never bound the pod.  The
vendor's agent releases the lock; we release it only if we do not bind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from subak.dialects import nodelock
from subak.model import manifest
from subak.scheduler.binder import NotBound
from subak.scheduler.counters import Counters
from subak.scheduler.feed import Feed
from subak.scheduler.messages import Bind, Event, NodeGone, NodeSeen, PodGone, PodSeen
from tinykube.client import Client
from tinykube.resource import NODES
from tinykube.status import ApiError, is_temporary

PAUSE = 1.0
RELEASES = 5

log = logging.getLogger(__name__)


class Wakeups:
    """Wakes tasks that wait for a change of a node or a pod."""

    def __init__(self) -> None:
        self._listening: dict[str, set[asyncio.Event]] = {}

    def wake(self, name: str) -> None:
        """Wake the tasks that listen to this name."""
        for event in self._listening.get(name, ()):
            event.set()

    @contextmanager
    def listen(self, news: asyncio.Event, *names: str) -> Iterator[None]:
        """Set `news` whenever one of the names is woken."""
        for name in names:
            self._listening.setdefault(name, set()).add(news)
        try:
            yield
        finally:
            for name in names:
                self._listening[name].discard(news)
                if not self._listening[name]:
                    del self._listening[name]


@dataclass(frozen=True, slots=True)
class Busy:
    """The lock cannot be taken now: for how many seconds at most, and which pod holds it."""

    seconds: float
    holder: str = ""


class NodeLocks:
    """The locks of all nodes; `clock` gives the seconds since the epoch.

    On nodes that are `marked` our own agent runs, and no lock is needed, not even by pods that wait for one already.
    """

    def __init__(
        self,
        client: Client,
        feed: Feed,
        counters: Counters,
        clock: Callable[[], float],
        marked: Callable[[manifest.Node], bool],
    ) -> None:
        self._clock = clock
        self._marked = marked
        self._client = client
        self._feed = feed
        self._counters = counters
        self._wakeups = Wakeups()
        self._turns: dict[str, asyncio.Lock] = {}
        self._ours: set[str] = set()

    def hear(self, event: Event) -> None:
        """Wake the tasks that an event concerns; `feed` has it already."""
        match event:
            case NodeSeen(node):
                self._wakeups.wake(node.name)
            case NodeGone(name) | PodGone(name):
                self._wakeups.wake(name)
            case PodSeen(pod) if pod.finished or pod.spec.node_name:
                self._wakeups.wake(pod.key)

    @asynccontextmanager
    async def held(self, bind: Bind, locks: Sequence[str]) -> AsyncIterator[None]:
        """Hold the node's locks for the pod.  They stay for the agent, unless NotBound is raised inside.

        Raises NotBound if the pod or the node is gone before its turn.
        """
        if not locks:
            yield
            return
        self._ours.add(bind.key)
        self._wakeups.wake(bind.key)
        try:
            async with self._turns.setdefault(bind.node, asyncio.Lock()):
                try:
                    for lock in locks:
                        await self._take(bind, lock)
                    yield
                except NotBound:
                    for lock in locks:
                        await self._release(bind, lock)
                    raise
        finally:
            self._ours.discard(bind.key)

    async def _take(self, bind: Bind, lock: str) -> None:
        """Wait for the lock and take it.  Raises NotBound."""
        news = asyncio.Event()
        with self._wakeups.listen(news, bind.node, bind.key):
            while True:
                news.clear()  # before the attempt, so that no change is missed
                busy = await self._try(bind, lock)
                if busy is None:
                    return
                self._counters.lock_waits += 1
                with self._wakeups.listen(news, busy.holder), suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), busy.seconds)

    async def _try(self, bind: Bind, lock: str) -> Busy | None:
        """Take the lock if it is free; None means that the pod holds it, or needs none."""
        self._check(bind)
        node = self._feed.nodes.objects.get(bind.node)
        if node is not None and self._marked(node):
            return None
        value: str | None = None
        try:
            while node is not None:
                value = node.annotations.get(lock)
                now = datetime.fromtimestamp(self._clock(), UTC)
                ours = nodelock.take(value, bind.key, now, lambda holder: self._has_business(holder, bind.node))
                if await self._write(node, lock, ours):
                    return None
                node = await self._read(bind.node)
        except nodelock.Contention:
            held = nodelock.Lock.parse(value or "")
            return Busy(max((held.since + nodelock.EXPIRY - now).total_seconds(), 0.0) + 0.1, held.owner)
        except ValueError as error:
            text = "node %s: annotation %s: %s; pod %s waits until it is removed"
            log.warning(text, bind.node, lock, error, bind.key, extra=_fields(bind))
            return Busy(nodelock.EXPIRY.total_seconds())
        except (OSError, TimeoutError) as error:
            text = "node %s: its lock cannot be taken for pod %s now: %s"
            log.warning(text, bind.node, bind.key, error, extra=_fields(bind))
            return Busy(PAUSE)
        raise NotBound(f"node {bind.node} is gone")

    def _check(self, bind: Bind) -> None:
        """Raise NotBound unless the pod still waits to be bound."""
        pod = self._feed.pods.objects.get(bind.key)
        if pod is None or pod.metadata.uid != bind.uid or pod.spec.node_name:
            raise NotBound("the pod is gone or has a node")

    def _has_business(self, holder: str, node: str) -> bool:
        """Whether a pod may still be bound to the node, or get its cards there."""
        if holder in self._ours:  # it waits here for its turn, so it cannot be at work
            return False
        pod = self._feed.pods.objects.get(holder)
        if pod is None or pod.status.phase not in ("", "Pending"):  # one that runs has its cards
            return False
        return pod.spec.node_name in ("", node)

    async def _write(self, node: manifest.Node, lock: str, value: str | None) -> bool:
        """Set or remove the lock; False if the node has changed since it was read."""
        metadata = {"resourceVersion": node.metadata.resource_version, "annotations": {lock: value}}
        try:
            await self._client.patch(NODES, node.name, "", {"metadata": metadata})
        except ApiError as error:
            if error.code == 409:
                return False
            if is_temporary(error):
                raise ConnectionError(error.message) from error
            raise NotBound(f"the lock of node {node.name} cannot be written: {error.message}") from error
        return True

    async def _read(self, name: str) -> manifest.Node:
        try:
            return await self._client.get(NODES, name, type=manifest.Node)
        except ApiError as error:
            if error.code == 404:
                raise NotBound(f"node {name} is gone") from error
            raise ConnectionError(error.message) from error

    async def _release(self, bind: Bind, lock: str) -> None:
        """Remove the lock if it is the pod's.  If that fails, it expires."""
        for _ in range(RELEASES):
            try:
                node = await self._read(bind.node)
                if not nodelock.release(node.annotations.get(lock), bind.key):
                    return
                if await self._write(node, lock, None):
                    return
            except (OSError, TimeoutError):
                await asyncio.sleep(PAUSE)
            except (NotBound, ValueError):
                return
        text = "node %s: the lock of pod %s could not be released"
        log.warning(text, bind.node, bind.key, extra=_fields(bind))


def _fields(bind: Bind) -> dict[str, str]:
    """What a line of the log is about."""
    return {"pod": bind.key, "node": bind.node}
