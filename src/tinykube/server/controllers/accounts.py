"""Every namespace has a service account that its pods run under."""

from __future__ import annotations

from tinykube.server import bootstrap
from tinykube.server.kinds import NAMESPACE, SERVICE_ACCOUNT
from tinykube.server.registry import Registry
from tinykube.server.store import Change


class Accounts:
    """Creates the account with its namespace, and again if it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._missing: set[str] = set()

    def note(self, change: Change) -> float | None:
        metadata = change.object["metadata"]
        if change.kind is NAMESPACE and change.type == "ADDED":
            # At once: who creates a namespace creates pods in it next.
            bootstrap.add_account(self._registry, metadata["name"])
        elif change.kind is SERVICE_ACCOUNT and change.type == "DELETED" and metadata["name"] == bootstrap.ACCOUNT:
            self._missing.add(metadata["namespace"])
            return 0.0
        return None

    def act(self) -> float | None:
        while self._missing:
            name = self._missing.pop()
            namespace = self._registry.store.get(NAMESPACE, "", name)
            if namespace is not None and not namespace["metadata"].get("deletionTimestamp"):
                bootstrap.add_account(self._registry, name)
        return None
