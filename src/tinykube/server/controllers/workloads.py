"""Deployments, ReplicaSets, DaemonSets and Jobs: pods that are made from a template, and looked after.

    change ──> who may care about it ──> one owner a turn: what is wanted, what is there ──> pods made and deleted

Each kind has a module with one function, `sync`.  It looks at one object and at what it owns, as they are stored, does
what is missing and says when to look again at the latest.  It remembers nothing: after a restart everybody is looked at
once.  Whatever a sync writes is a change that somebody may care about, so that things go on until nothing is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tinykube.failures import told
from tinykube.server import selectors
from tinykube.server.controllers import daemon_sets, deployments, jobs, replica_sets
from tinykube.server.controllers.owners import Owners, Place, owner_of, place
from tinykube.server.kinds import DAEMON_SET, DEPLOYMENT, JOB, NODE, POD, REPLICA_SET, WORKLOADS, Kind
from tinykube.server.registry import Registry
from tinykube.server.store import Change
from tinykube.status import ApiError

Json = dict[str, Any]

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
LONGEST = 60.0
"""Owners wait for dates, and somebody may set the clock: look at them that often."""

log = logging.getLogger(__name__)

_SYNC: dict[Kind, Callable[[Owners, Json], float | None]] = {
    DEPLOYMENT: deployments.sync,
    REPLICA_SET: replica_sets.sync,
    DAEMON_SET: daemon_sets.sync,
    JOB: jobs.sync,
    POD: jobs.free,
}
# Who may own what.
_PARENTS = {POD: (REPLICA_SET, DAEMON_SET, JOB), REPLICA_SET: (DEPLOYMENT,)}


class Workloads:
    """Knows when to look at which owner."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._owners = Owners(registry)
        self._due: dict[Place, float] = {}
        self._retries: dict[Place, float] = {}
        for kind in WORKLOADS:
            for object in self._store.list(kind):
                self._wake(place(kind, object))
        for pod in self._store.list(POD):
            self._wake_stranded(pod)

    def note(self, change: Change) -> float | None:
        if change.kind in WORKLOADS:
            self._wake(place(change.kind, change.object))
        if change.kind in _PARENTS:
            self._owners.note(change)
            self._wake_parents(change)
            if change.kind is POD and change.type != "DELETED":
                self._wake_stranded(change.object)
        elif change.kind is NODE and _matters(change):
            for each in self._store.list(DAEMON_SET):
                self._wake(place(DAEMON_SET, each))
        return self._seconds_left()

    def act(self) -> float | None:
        """Look at the owner whose turn it is."""
        if self._due:
            first = min(self._due, key=self._due.__getitem__)
            if self._due[first] <= self._registry.steady():
                del self._due[first]
                self._sync(first)
        return self._seconds_left()

    def _sync(self, owner: Place) -> None:
        object = self._store.get(*owner)
        if object is None:
            self._retries.pop(owner, None)
            return
        try:
            seconds = _SYNC[owner[0]](self._owners, object)
            self._retries.pop(owner, None)
        except Exception as error:  # whatever is wrong with one of them, the others go on
            seconds = self._retries.get(owner, FIRST_RETRY)
            self._retries[owner] = min(seconds * 2, LAST_RETRY)
            problem = error.message if isinstance(error, ApiError) else told(error)
            log.warning("%s %s/%s: %s; again in %g s", owner[0].kind, owner[1], owner[2], problem, seconds)
        if seconds is not None:
            self._wake(owner, min(seconds, LONGEST))

    def _wake(self, owner: Place, seconds: float = 0.0) -> None:
        due = self._registry.steady() + seconds
        self._due[owner] = min(due, self._due.get(owner, due))

    def _seconds_left(self) -> float | None:
        return max(0.0, min(self._due.values()) - self._registry.steady()) if self._due else None

    def _wake_parents(self, change: Change) -> None:
        """The owners of an object, old and new; if it has none, those who would take it."""
        owners = {owner_of(each) for each in (change.old, change.object) if each is not None} - {None}
        for owner in owners:
            if owner is not None and owner[0] in WORKLOADS:
                self._wake(owner)
        meta, old = change.object["metadata"], (change.old or {}).get("metadata", {})
        if change.type == "DELETED" or owner_of(change.object) or _same(meta, old, "labels", "ownerReferences"):
            return
        for kind in _PARENTS[change.kind]:
            for each in self._store.list(kind, meta["namespace"]):
                if selectors.selects(each["spec"].get("selector"), meta.get("labels", {})):
                    self._wake(place(kind, each))

    def _wake_stranded(self, pod: Json) -> None:
        if jobs.is_stranded(self._owners, pod):
            self._wake(place(POD, pod))


def _same(new: Json, old: Json, *keys: str) -> bool:
    return bool(old) and all(new.get(key) == old.get(key) for key in keys)


def _matters(change: Change) -> bool:
    """Whether a change of a node may decide who runs there; that it is still alive does not."""
    if change.type != "MODIFIED" or change.old is None:
        return True
    new, old = change.object, change.old
    return not (_same(new["metadata"], old["metadata"], "labels") and new["spec"] == old["spec"])
