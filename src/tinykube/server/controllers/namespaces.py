"""A namespace that is being deleted is emptied, pods first, and then ended.

While something is left, its status says what it waits for.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tinykube.server.deletion import delete
from tinykube.server.kinds import NAMESPACE, POD, Kind
from tinykube.server.options import DeleteOptions, WriteOptions
from tinykube.server.registry import Registry, Target
from tinykube.server.store import Change

Json = dict[str, Any]

FINALIZER = "kubernetes"

_BY_US = WriteOptions("kube-controller-manager")
_AT_ONCE = DeleteOptions(policy="Background")

# Type, reason and message of each condition when there is nothing to say.
_QUIET = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure", "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)  # fmt: skip


class Namespaces:
    """Knows the namespaces that are on their way."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._content = [kind for kind in registry.store.kinds if kind.namespaced]
        self._ending = {
            each["metadata"]["name"]
            for each in registry.store.list(NAMESPACE)
            if each["metadata"].get("deletionTimestamp")
        }

    def note(self, change: Change) -> float | None:
        metadata = change.object["metadata"]
        if change.kind is not NAMESPACE:
            return 0.0 if self._ending and metadata.get("namespace") in self._ending else None
        if change.type == "DELETED":
            self._ending.discard(metadata["name"])
        elif metadata.get("deletionTimestamp"):
            self._ending.add(metadata["name"])
            return 0.0
        return None

    def act(self) -> float | None:
        for name in list(self._ending):
            self._empty(name)
        return None

    def _empty(self, name: str) -> None:
        self._delete_all(POD, name)
        if self._store.count(POD, name):
            self._report(name, [])  # as on a real cluster, pods are waited for in silence
            return
        for kind in self._content:
            self._delete_all(kind, name)
        remaining = [kind for kind in self._content if self._store.count(kind, name)]
        self._report(name, remaining)
        if not remaining:
            self._end(name)

    def _delete_all(self, kind: Kind, namespace: str) -> None:
        for object in self._store.list(kind, namespace):
            if not object["metadata"].get("deletionTimestamp"):
                delete(self._registry, Target(kind, namespace, object["metadata"]["name"]), _AT_ONCE)

    def _end(self, name: str) -> None:
        """Take our finalizer off; if it was the last one, the namespace goes with it."""
        stored = self._store.stored(NAMESPACE, "", name)
        spec = stored.object.get("spec", {}) if stored else {}
        if stored is None or FINALIZER not in spec.get("finalizers", ()):
            return
        rest = [each for each in spec["finalizers"] if each != FINALIZER]
        spec = {key: value for key, value in spec.items() if key != "finalizers"} | (
            {"finalizers": rest} if rest else {}
        )
        target = Target(NAMESPACE, "", name, "finalize")
        self._registry.write(target, {**stored.object, "spec": spec}, stored, _BY_US)

    def _report(self, name: str, remaining: list[Kind]) -> None:
        """Say in the status what is still there."""
        stored = self._store.stored(NAMESPACE, "", name)
        if stored is None or (not remaining and not self._store.count(POD, name)):
            return
        status = stored.object.get("status", {})
        before = {each["type"]: each for each in status.get("conditions", ())}
        found = self._true(name, remaining)
        now = self._registry.now()
        conditions = [
            _condition(before.get(kind), now, kind, *found.get(kind, ("False", reason, message)))
            for kind, reason, message in _QUIET
        ]
        self._registry.put(NAMESPACE, {**stored.object, "status": {**status, "conditions": conditions}}, stored)

    def _true(self, name: str, remaining: list[Kind]) -> dict[str, tuple[str, str, str]]:
        """Status, reason and message of the conditions that are true."""
        found = {}
        if remaining:
            counts = sorted(
                f"{kind.plural}.{kind.group} has {self._store.count(kind, name)} resource instances"
                for kind in remaining
            )
            text = f"Some resources are remaining: {', '.join(counts)}"
            found["NamespaceContentRemaining"] = ("True", "SomeResourcesRemain", text)
        finalizers = Counter(
            finalizer
            for kind in remaining
            for object in self._store.list(kind, name)
            for finalizer in object["metadata"].get("finalizers", ())
        )
        if finalizers:
            held = sorted(f"{each} in {count} resource instances" for each, count in finalizers.items())
            text = f"Some content in the namespace has finalizers remaining: {', '.join(held)}"
            found["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", text)
        return found


def _condition(before: Json | None, now: str, kind: str, status: str, reason: str, message: str) -> Json:
    since = (before.get("lastTransitionTime") or now) if before and before["status"] == status else now
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
