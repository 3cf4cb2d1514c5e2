"""Every namespace has a service account that its pods run under."""

from __future__ import annotations

from tinykube.server import bootstrap
from tinykube.server.kinds import NAMESPACE, SERVICE_ACCOUNT
from tinykube.server.registry import Registry
from tinykube.server.store import Change
from tinykube.status import ApiError


class Accounts:
    """Creates the account with its namespace, and again if it is deleted."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._missing: set[str] = set()

    def note(self, change: Change) -> float | None:
        metadata = change.object["metadata"]
        if change.kind is NAMESPACE and change.type == "ADDED":
            # At once: who creates a namespace creates pods in it next.
            try:
                bootstrap.add_account(self._registry, metadata["name"])
            except ApiError:  # the namespace is stored, and its creator must hear so
                self._missing.add(metadata["name"])
                return 0.0
        elif change.kind is SERVICE_ACCOUNT and change.type == "DELETED" and metadata["name"] == bootstrap.ACCOUNT:
            self._missing.add(metadata["namespace"])
            return 0.0
        return None

    def act(self) -> float | None:
        refused: ApiError | None = None
        for name in list(self._missing):
            namespace = self._registry.store.get(NAMESPACE, "", name)
            try:
                if namespace is not None and not namespace["metadata"].get("deletionTimestamp"):
                    bootstrap.add_account(self._registry, name)
                self._missing.discard(name)
            except ApiError as error:  # as by a quota of the namespace: the others get theirs
                refused = refused or error
        if refused is not None:
            raise refused
        return None
