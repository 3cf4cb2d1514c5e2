"""Pods whose node is gone: no kubelet runs them any more or will report their end.

A node that comes back within 40 seconds finds its pods as they were.  Pods on no node are gone as soon as they are
deleted; one that was marked when the server was killed is removed by the next one.  A node that the store cannot
read any more is not gone.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.deletion import delete
from tinykube.server.kinds import NODE, POD
from tinykube.server.options import DeleteOptions
from tinykube.server.pods import with_condition
from tinykube.server.registry import Registry, Target
from tinykube.server.store import Change, Stored

Json = dict[str, Any]

QUARANTINE_SECONDS = 40.0

_GONE = {
    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}  # fmt: skip


class Strays:
    """Knows the nodes that are missing, and since when."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._missing: dict[str, float] = {}
        self._half_gone: list[Json] = []
        for pod in self._store.list(POD):
            if pod["spec"].get("nodeName"):
                self._look_for(pod["spec"]["nodeName"])
            elif pod["metadata"].get("deletionTimestamp"):
                self._half_gone.append(pod["metadata"])

    def note(self, change: Change) -> float | None:
        if change.type == "DELETED":
            return self._look_for(change.object["metadata"]["name"]) if change.kind is NODE else None
        if change.kind is not POD:
            return None
        node = change.object["spec"].get("nodeName", "")
        if change.old is not None and change.old["spec"].get("nodeName", "") == node:
            return None
        return self._look_for(node)

    def act(self) -> float | None:
        while self._half_gone:
            meta = self._half_gone[-1]
            found = self._store.get(POD, meta["namespace"], meta["name"])
            if found is not None and found["metadata"]["uid"] == meta["uid"]:
                delete(self._registry, Target(POD, meta["namespace"], meta["name"]), DeleteOptions(grace=0))
            self._half_gone.pop()
        now = self._registry.steady()
        for node, since in list(self._missing.items()):
            left = since + QUARANTINE_SECONDS - now
            if left > 0:
                return left  # they are in the order in which they went missing
            if not self._is_there(node):
                self._remove(node)
            del self._missing[node]
        return None

    def _is_there(self, node: str) -> bool:
        return self._store.get(NODE, "", node) is not None or self._store.is_aside(NODE, "", node)

    def _look_for(self, node: str) -> float | None:
        if not node or node in self._missing or self._is_there(node):
            return None
        self._missing[node] = self._registry.steady()
        return QUARANTINE_SECONDS

    def _remove(self, node: str) -> None:
        for _, stored in list(self._store.range(POD)):
            if stored.object["spec"].get("nodeName") == node:
                self._mark(stored)
                metadata = stored.object["metadata"]
                target = Target(POD, metadata["namespace"], metadata["name"])
                delete(self._registry, target, DeleteOptions(grace=0))

    def _mark(self, stored: Stored) -> None:
        """Say why a pod goes, for those who watch it."""
        status: Json = stored.object.get("status", {})
        if status.get("phase") in ("Succeeded", "Failed"):
            return
        conditions = with_condition(status.get("conditions", []), _GONE, self._registry.now())
        status = {**status, "phase": "Failed", "conditions": conditions}
        self._registry.put(POD, {**stored.object, "status": status}, stored)
