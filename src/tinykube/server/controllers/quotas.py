"""The status of a quota says what is used."""

from __future__ import annotations

import time

from tinykube.server.kinds import RESOURCE_QUOTA
from tinykube.server.registry import Registry
from tinykube.server.rules import quota
from tinykube.server.store import Change

PAUSE_FACTOR = 10.0
"""Counting what a large namespace uses takes time; this much longer is the pause before the next count."""


class Quotas:
    """Counts anew what is used in namespaces where something has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._changed = {each["metadata"]["namespace"] for each in registry.store.list(RESOURCE_QUOTA)}
        self._pause_until = 0.0

    def note(self, change: Change) -> float | None:
        namespace = change.object["metadata"].get("namespace", "")
        if not namespace or not self._store.count(RESOURCE_QUOTA, namespace):
            return None
        self._changed.add(namespace)
        return max(self._pause_until - time.monotonic(), 0.0)

    def act(self) -> float | None:
        started = time.monotonic()
        for namespace in list(self._changed):
            for _, stored in list(self._store.range(RESOURCE_QUOTA, namespace)):
                status = quota.status(stored.object, self._store)
                self._registry.put(RESOURCE_QUOTA, {**stored.object, "status": status}, stored)
        self._changed.clear()  # what was written just now is no news
        self._pause_until = time.monotonic() + PAUSE_FACTOR * (time.monotonic() - started)
        return None
