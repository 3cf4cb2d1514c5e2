"""Runs the core on an API server: watches become events, and instructions become requests.

    reflectors ── events ──> Core ── Bind ──> volumes, locks, binder ──> Binding
                              ^  │                 │
                              │  ├── Report ──> reporter ──> condition, event
                              │  ├── Restore ─> restorer ──> annotations of the pod
                              │  ├── Evict ───> evictor ───> condition, event, deletion
                              │  ├── Nominate > nominator ─> nominatedNodeName of the pod
                              │  ├── ShowGroup, MakeGroup, ShowQueue ──> groups, queues ──> status of PodGroup and Queue
                              │  ├── AskOwner > owners ── OwnerSeen ──> Core
                              └──── BindFailed ────┘

Nothing is polled: a cycle runs when something has happened, or when a pod's pause ends.  The core decides nothing
before it has seen all objects, and nothing while the service stands by: then it only keeps up with what happens.  It
also waits while UNDER_WAY bindings are under way, so that a more important pod that comes later still goes first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

import msgspec

from subak.dialects import mark
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.scheduler import volumes
from subak.scheduler.batch_configuration import USUAL, BatchConfiguration, Source
from subak.scheduler.binder import Binder, NotBound
from subak.scheduler.core import Core, everything
from subak.scheduler.counters import Counters
from subak.scheduler.evictor import Evictor
from subak.scheduler.feed import Feed
from subak.scheduler.groups import Groups
from subak.scheduler.locks import NodeLocks
from subak.scheduler.messages import (
    AskOwner,
    Bind,
    BindFailed,
    Event,
    Evict,
    EvictFailed,
    GroupsMade,
    MakeGroup,
    Message,
    NamesChanged,
    Nominate,
    PodGone,
    QueueGone,
    Report,
    Restore,
    ShowGroup,
    ShowQueue,
    Warn,
)
from subak.scheduler.nominator import Nominator
from subak.scheduler.owners import Owners
from subak.scheduler.queues import Queues
from subak.scheduler.reporter import Reporter
from subak.scheduler.restorer import Restorer
from subak.scheduler.story import printed
from subak.scheduler.volumes import VolumeBinder
from tinykube.client import Client
from tinykube.events import Recorder

NAME = "subak"
AT_ONCE = 64
UNDER_WAY = 256
RETIRE_PAUSE = 0.01
PER_CYCLE = 16
"""Few enough that other tasks of the event loop run every few milliseconds."""

log = logging.getLogger(__name__)


class Service:
    """A scheduler for the pods of an API server that it `serves`."""

    def __init__(
        self,
        client: Client,
        interpreter: Interpreter | None = None,
        serves: Callable[[manifest.Pod], bool] = everything,
        at_once: int = AT_ONCE,
        standby: bool = False,
        volume_timeout: float = volumes.TIMEOUT,
        marked: Callable[[manifest.Node], bool] = mark.marked,
        makes_queues: bool = True,
        batch: Source = USUAL,
    ) -> None:
        """`standby`: decide nothing until `lead` is called.  `marked`: where our own agent runs; it needs no lock.

        `makes_queues`: see to it that Volcano's default queues are there, as its scheduler does.
        `batch`: where the scheduler configuration is written.
        """
        self.core = Core(interpreter, serves)
        self.counters = Counters()
        self.ready = asyncio.Event()
        self.feed = Feed(client, self._handle, self._complete_queues)
        self.batch_configuration = BatchConfiguration(client, batch, self._handle)
        self.recorder = Recorder(client, NAME)
        self._reporter = Reporter(client, self.feed.pods, self.recorder)
        self._binder = Binder(client, self.counters, at_once)
        self._restorer = Restorer(client)
        self._evictor = Evictor(client, self.recorder)
        self._nominator = Nominator(client)
        self._groups = Groups(client, self.feed.groups, self.recorder)
        self._queues = Queues(client, self.feed.queues)
        self._owners = Owners(client, self._handle)
        self._locks = NodeLocks(client, self.feed, self.counters, self._now, marked)
        self._volumes = VolumeBinder(client, self.feed, volume_timeout)
        self._news = asyncio.Event()
        self._tasks = asyncio.TaskGroup()
        self._executors: dict[type[Message], Callable[[Any], None]] = {
            Bind: self._begin_binding,
            Report: self._report,
            Restore: self._begin_restoring,
            Evict: self._begin_evicting,
            Nominate: self._begin_nominating,
            ShowGroup: lambda show: self._begin(self._groups.show(show)),
            MakeGroup: lambda make: self._begin(self._groups.make(make)),
            ShowQueue: lambda show: self._begin(self._queues.show(show)),
            AskOwner: lambda ask: self._begin(self._owners.ask(ask)),
            Warn: self._warn,
        }
        self._leading = not standby
        self._marked = marked
        self._makes_queues = makes_queues
        self._under_way = 0
        self._epoch = 0.0

    async def run(self) -> None:
        """Schedule until cancelled."""
        self._epoch = time.time() - asyncio.get_running_loop().time()
        async with self._tasks as group:
            group.create_task(self.feed.run())
            group.create_task(self.batch_configuration.run())
            group.create_task(self.recorder.run())
            group.create_task(self._reporter.run())
            await self.feed.complete()
            await self.batch_configuration.known.wait()
            gc.freeze()  # objects from the first lists live long: later collections need not visit them
            self.ready.set()
            while True:
                if self._leading:
                    self._cycle()
                    await self._next_turn()
                else:
                    await self._stand_by()

    @property
    def leading(self) -> bool:
        """Whether it decides."""
        return self._leading

    def lead(self) -> None:
        """Begin to decide."""
        self.core.take_over()
        self._leading = True
        self._complete_queues()
        self._news.set()

    async def retire(self) -> None:
        """Decide nothing more, and return when no binding is under way."""
        self._leading = False
        while self._under_way:
            await asyncio.sleep(RETIRE_PAUSE)

    def needs_variables(self) -> bool:
        """Whether containers get their cards by variables of their pods on any node, or that is not known yet."""
        return self.core.needs_variables or not self.feed.nodes.synced.is_set()

    def names_changed(self) -> None:
        """`serves` gives other answers from now on."""
        self._handle(NamesChanged())

    async def _stand_by(self) -> None:
        """Keep up with what happens."""
        self._news.clear()
        for instruction in self.core.stand_by(self._now()):
            self._executors[type(instruction)](instruction)
        await self._news.wait()

    async def carry_out(self, bind: Bind, patience: float) -> None:
        """Bind a pod for another scheduler, which reports the outcome.  Raises NotBound.

        It waits no longer than `patience` seconds for the locks of the node.
        """
        try:
            async with asyncio.timeout(patience) as limit, self._locks.held(bind, self._locks_of(bind)):
                limit.reschedule(None)
                await self._binder.bind(self._complete(bind))
            self.counters.bound += 1
        except (NotBound, TimeoutError) as problem:
            self.counters.bind_failures += 1
            why = str(problem) or f"the lock of node {bind.node} is held for another pod"
            self.tell(BindFailed(bind.key, bind.uid, why))
            raise NotBound(why) from problem

    def tell(self, event: Event) -> None:
        """Tell the core of something that no watch reports."""
        self._handle(event)

    def now(self) -> float:
        """The time as the core counts it."""
        return self._now()

    def _handle(self, event: Event) -> None:
        self.counters.events += 1
        self.core.handle(event)
        self._locks.hear(event)
        self._volumes.hear(event)
        match event:
            case PodGone(key):
                self._reporter.forget(key)
            case QueueGone(name):
                self._queues.forget(name)
                self._complete_queues()
            case GroupsMade(by_volcano):
                self._queues.by_volcano = by_volcano
                if self._leading:
                    self._begin(self._queues.show_again())
        self._news.set()

    def _cycle(self) -> None:
        """Decide, and begin to carry out the instructions."""
        self._news.clear()
        began, sessions = time.perf_counter(), self.core.batch.sessions
        instructions = self.core.cycle(self._now(), min(PER_CYCLE, UNDER_WAY - self._under_way))
        self.counters.cycles += 1
        took = time.perf_counter() - began
        self.counters.deciding_seconds += took
        if self.core.batch.sessions > sessions:
            self.counters.with_sessions.add(took)
        for instruction in instructions:
            self._executors[type(instruction)](instruction)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something be done that never fails, and that nothing waits for; not if the service just ends."""
        try:
            self._tasks.create_task(work)
        except RuntimeError:  # a list may come in while all tasks are being cancelled
            work.close()

    def _complete_queues(self) -> None:
        """See to it that the queues are there that always are."""
        if self._leading and self._makes_queues:
            self._begin(self._queues.complete())

    def _begin_binding(self, bind: Bind) -> None:
        self._under_way += 1
        self._tasks.create_task(self._bind(bind, self._locks_of(bind)))

    def _report(self, report: Report) -> None:
        self.counters.reports += 1
        self.counters.refusals.update(report.reasons.keys())
        self._reporter.report(report)

    def _begin_restoring(self, restore: Restore) -> None:
        self.counters.restored += 1
        self._tasks.create_task(self._restorer.restore(restore))

    def _begin_evicting(self, evict: Evict) -> None:
        self.counters.evicted += 1
        self._tasks.create_task(self._evict(evict))

    async def _evict(self, evict: Evict) -> None:
        await self._nominator.written()  # so that a new scheduler knows for whom the pod has left
        if not await self._evictor.evict(evict):
            self._handle(EvictFailed(evict.key, evict.uid))

    def _begin_nominating(self, nominate: Nominate) -> None:
        self.counters.nominated += bool(nominate.node)
        self._tasks.create_task(self._nominator.nominate(nominate))

    def _warn(self, warn: Warn) -> None:
        self.counters.warnings += 1
        about, _, rest = warn.text.partition(" ")  # most begin with what they are about: "pod a/b: ..."
        fields = {about: rest.partition(" ")[0].rstrip(":")} if about in ("pod", "node") else {}
        log.warning("%s", warn.text, extra=fields)

    async def _next_turn(self) -> None:
        """Wait until another cycle makes sense."""
        full = self._under_way >= UNDER_WAY
        wakes_at = None if full else self.core.wakes_at()
        delay = None if wakes_at is None else max(wakes_at - self._now(), 0.0)
        if delay == 0.0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(delay):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _bind(self, bind: Bind, locks: tuple[str, ...]) -> None:
        """Carry out a binding, and report the outcome to the core and the pod."""
        waits = bool(locks or bind.volumes)
        self._under_way -= waits  # a pod that waits for a lock or a volume must not hold up the others
        try:
            async with self._volumes.bound(bind), self._locks.held(bind, locks):
                await self._binder.bind(self._complete(bind))
            self._count(bind)
            self._reporter.bound(bind)
        except NotBound as problem:
            self.counters.bind_failures += 1
            self._reporter.not_bound(bind, str(problem))
            self._handle(BindFailed(bind.key, bind.uid, str(problem)))
            story = printed(self.core.story(bind.key))
            fields = {"pod": bind.key, "node": bind.node}
            log.info("pod %s is not bound to %s: %s (%s)", bind.key, bind.node, problem, story, extra=fields)
        finally:
            self._under_way -= not waits
            self._news.set()

    def _count(self, bind: Bind) -> None:
        """Count a pod that was bound, and how long it has waited."""
        self.counters.bound += 1
        pod, seen = self.feed.pods.objects.get(bind.key), self.core.seen_at(bind.key)
        if pod is not None and pod.metadata.creation_timestamp and seen is not None:
            # The server tells whole seconds: the pod was created within the one that follows.
            created = datetime.fromisoformat(pod.metadata.creation_timestamp).timestamp()
            created = max(created, min(seen, created + 1.0))
            self.counters.created_to_bound.add(max(self._now() - created, 0.0))

    def _locks_of(self, bind: Bind) -> tuple[str, ...]:
        """The locks that the agents of the pod's cards need; our own agent needs none."""
        node = self.feed.nodes.objects.get(bind.node)
        if node is not None and self._marked(node):
            return ()
        return self.core.locks(bind.key)

    def _complete(self, bind: Bind) -> Bind:
        """The binding with what our own agent needs for a pod with cards, if it came to the node after the decision."""
        node = self.feed.nodes.objects.get(bind.node)
        if node is None or not bind.annotations:
            return bind
        return msgspec.structs.replace(bind, annotations=bind.annotations | mark.required(mark.way(node)))

    def _now(self) -> float:
        """Wall time that never jumps, since pauses are measured by it."""
        return self._epoch + asyncio.get_running_loop().time()
