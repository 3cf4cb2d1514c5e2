"""What controllers do on a cluster, as far as somebody would miss it.

- every namespace has a `default` service account
- a namespace that is being deleted is emptied, then ended
- what is owned goes with its owners
- the status of a quota says what is used
- events are forgotten after an hour

A change is looked at one turn of the loop later, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from subak.kube.status import ApiError
from subak.local.api import bootstrap
from subak.local.api.deletion import delete
from subak.local.api.garbage import Garbage
from subak.local.api.kinds import EVENT, KINDS, NAMESPACE, NEW_EVENT, RESOURCE_QUOTA
from subak.local.api.options import DeleteOptions, WriteOptions
from subak.local.api.registry import Registry, Target
from subak.local.api.rules import quota
from subak.local.api.store import Change

Json = dict[str, Any]

EVENT_SECONDS = 3600.0
# Counting what a large namespace uses takes time; this much longer is the pause before the next count.
PAUSE_FACTOR = 10.0

_BY_US = WriteOptions("namespace-controller")
_CONTENT = tuple(kind for kind in KINDS if kind.namespaced and kind is not NEW_EVENT)

log = logging.getLogger(__name__)


class Housekeeping:
    """Keeps a store in order.  Starts with what has to be there."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._garbage = Garbage(registry)
        self._ending: set[str] = set()
        self._to_count: dict[str, None] = {}
        self._count_at = 0.0
        self._seen: dict[str, float] = {}
        self._timers: dict[str, asyncio.Handle] = {}
        self._silence = self._store.subscribe(self._note)
        bootstrap.fill(registry)
        for namespace in self._store.list(NAMESPACE):
            if namespace["metadata"].get("deletionTimestamp"):
                self._ending.add(namespace["metadata"]["name"])

    def close(self) -> None:
        """Stop looking."""
        self._silence()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def run(self) -> None:
        """Do what there is to do."""
        self._timers.pop("run", None)
        try:
            self._garbage.collect()
            for name in list(self._ending):
                self._end(name)
            self._count()
        except ApiError as error:
            log.warning("housekeeping: %s", error.message)

    def _note(self, change: Change) -> None:
        kind, metadata = change.kind, change.object["metadata"]
        namespace = metadata.get("namespace", "")
        due = self._garbage.note(change)
        if kind is NAMESPACE:
            due = self._note_namespace(change) or due
        elif kind is EVENT:
            self._note_event(change)
        elif namespace and (kind is RESOURCE_QUOTA or self._store.count(RESOURCE_QUOTA, namespace)):
            self._to_count[namespace] = None
            due = True
        if due or (namespace in self._ending and change.type == "DELETED"):
            self._schedule("run", 0.0, self.run)

    def _schedule(self, name: str, seconds: float, task: Any) -> None:
        """Do something later; without a loop it waits for the next change that comes with one."""
        if name not in self._timers:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._timers[name] = loop.call_later(seconds, task) if seconds else loop.call_soon(task)

    # Namespaces

    def _note_namespace(self, change: Change) -> bool:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED":
            self._ending.discard(name)
        elif change.object["metadata"].get("deletionTimestamp"):
            self._ending.add(name)
            return True
        elif change.type == "ADDED":
            bootstrap.add_account(self._registry, name)
        return False

    def _end(self, name: str) -> None:
        """Empty a namespace; once nothing is left in it, it goes too."""
        for kind in _CONTENT:
            for object in self._store.list(kind, name):
                if not object["metadata"].get("deletionTimestamp"):
                    delete(self._registry, Target(kind, name, object["metadata"]["name"]), DeleteOptions())
        stored = self._store.stored(NAMESPACE, "", name)
        if stored is None or any(self._store.count(kind, name) for kind in _CONTENT):
            return
        finalizers = [each for each in stored.object["spec"].get("finalizers", []) if each != "kubernetes"]
        spec = {key: value for key, value in stored.object["spec"].items() if key != "finalizers"}
        emptied = {**stored.object, "spec": {**spec, **({"finalizers": finalizers} if finalizers else {})}}
        if finalizers != stored.object["spec"].get("finalizers", []):
            self._registry.write(Target(NAMESPACE, "", name, "finalize"), emptied, stored, _BY_US)

    # Quotas

    def _count(self) -> None:
        if not self._to_count:
            return
        now = time.monotonic()
        if now < self._count_at:
            self._schedule("count", self._count_at - now, self._count_later)
            return
        waiting, self._to_count = self._to_count, {}
        for namespace in waiting:
            for _, stored in list(self._store.range(RESOURCE_QUOTA, namespace)):
                status = quota.status(stored.object, self._store)
                self._registry.put(RESOURCE_QUOTA, {**stored.object, "status": status}, stored)
        waiting.clear()
        self._to_count.clear()  # what has just been written is no news
        self._count_at = time.monotonic() + PAUSE_FACTOR * (time.monotonic() - now)

    def _count_later(self) -> None:
        self._timers.pop("count", None)
        self._count()

    # Events

    def _note_event(self, change: Change) -> None:
        if change.type == "DELETED":
            self._seen.pop(change.key, None)
            return
        self._seen.pop(change.key, None)
        self._seen[change.key] = self._registry.clock()
        self._schedule("events", EVENT_SECONDS / 60, self._forget_events)

    def _forget_events(self) -> None:
        """The oldest come first."""
        self._timers.pop("events", None)
        ends = self._registry.clock() - EVENT_SECONDS
        for key, seen in list(self._seen.items()):
            if seen > ends:
                self._schedule("events", EVENT_SECONDS / 60, self._forget_events)
                return
            namespace, _, name = key.rpartition("/")
            self._store.delete(EVENT, namespace, name)
