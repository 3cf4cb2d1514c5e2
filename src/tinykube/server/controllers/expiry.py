"""Events are forgotten an hour after they were last written, so that they do not fill the memory."""

from __future__ import annotations

from tinykube.server.kinds import EVENT
from tinykube.server.registry import Registry
from tinykube.server.store import Change, key_in

EVENT_SECONDS = 3600.0
PAUSE_SECONDS = 60.0
"""How often to look at most: one deletion a time would be work for nothing."""


class Expiry:
    """Knows when each event was written; the oldest comes first.  Those of an earlier run count from now on."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._written = {key_in(event): registry.steady() for event in registry.store.list(EVENT)}

    def note(self, change: Change) -> float | None:
        if change.kind is not EVENT:
            return None
        self._written.pop(change.key, None)
        if change.type == "DELETED":
            return None
        self._written[change.key] = self._registry.steady()
        return EVENT_SECONDS

    def act(self) -> float | None:
        ended = self._registry.steady() - EVENT_SECONDS
        for key, written in list(self._written.items()):
            if written > ended:
                return max(written - ended, PAUSE_SECONDS)
            namespace, _, name = key.rpartition("/")
            self._registry.store.delete(EVENT, namespace, name)
        return None
