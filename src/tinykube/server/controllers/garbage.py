"""What is owned goes with its owners.

An object names its owners.  When the last of them is gone it is deleted.  An owner may be deleted with a finalizer that
says what is to happen first: `foregroundDeletion` (what it owns goes before it) or `orphan` (what it owns is let go).
Owners of kinds that are not served here count as being there, and so do owners that the store cannot read any more.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.deletion import FOREGROUND, ORPHAN, delete
from tinykube.server.kinds import Kind
from tinykube.server.options import DeleteOptions, WriteOptions
from tinykube.server.registry import Registry, Target
from tinykube.server.store import Change, Stored, encode
from tinykube.status import ApiError

Json = dict[str, Any]
Place = tuple[Kind, str, str]
"""Kind, namespace and name."""

MOST_FAILURES = 10
"""In one turn: if nothing can be written, it is of no use to try it with thousands of objects."""

_BY_US = WriteOptions("kube-controller-manager")


class Garbage:
    """Knows who owns what, and what is to be looked at."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._owned: dict[str, set[Place]] = {}
        self._to_check: dict[Place, None] = {}
        self._to_finish: dict[Place, None] = {}
        self._served = {(kind.api_version, kind.kind): kind for kind in registry.store.kinds}
        for kind in registry.store.kinds:
            for object in registry.store.list(kind):
                self._begin_with(_place(kind, object["metadata"]), object["metadata"])

    def note(self, change: Change) -> float | None:
        metadata = change.object["metadata"]
        old = change.old["metadata"] if change.old else {}
        if metadata.get("ownerReferences") or old.get("ownerReferences"):
            self._note_references(change, old.get("ownerReferences", []), metadata.get("ownerReferences", []))
        if change.type == "DELETED" or metadata.get("deletionTimestamp"):
            self._to_check.update(dict.fromkeys(self._owned.get(metadata["uid"], ())))
        if change.type != "DELETED" and metadata.get("deletionTimestamp"):
            self._note_finalizers(_place(change.kind, metadata), metadata)
        return 0.0 if self._to_check or self._to_finish else None

    def act(self) -> float | None:
        failures: list[Exception] = []
        again: list[tuple[dict[Place, None], Place]] = []
        while (self._to_finish or self._to_check) and len(failures) < MOST_FAILURES:
            waiting, look = (self._to_finish, self._finish) if self._to_finish else (self._to_check, self._check)
            place = next(iter(waiting))
            del waiting[place]
            try:
                look(place)
            except Exception as error:  # the others have their turn first
                failures.append(error)
                if not isinstance(error, ApiError) or error.code >= 500:
                    again.append((waiting, place))
        for waiting, place in again:
            waiting[place] = None
        if failures:
            raise failures[0]
        return None

    def _begin_with(self, place: Place, metadata: Json) -> None:
        for reference in metadata.get("ownerReferences", ()):
            self._owned.setdefault(reference["uid"], set()).add(place)
            self._to_check[place] = None
        if metadata.get("deletionTimestamp"):
            self._note_finalizers(place, metadata)

    def _note_references(self, change: Change, before: list[Json], now: list[Json]) -> None:
        place = _place(change.kind, change.object["metadata"])
        if change.type == "DELETED":
            now = []
        kept = {encode(each) for each in now}
        for reference in before:
            if encode(reference) not in kept:
                self._forget(reference["uid"], place)
                self._look_at_owner(reference, place[1])
        for reference in now:
            self._owned.setdefault(reference["uid"], set()).add(place)
        if now and now != before:
            self._to_check[place] = None

    def _forget(self, uid: str, place: Place) -> None:
        places = self._owned.get(uid, set())
        places.discard(place)
        if not places:
            self._owned.pop(uid, None)

    def _note_finalizers(self, place: Place, metadata: Json) -> None:
        if {FOREGROUND, ORPHAN} & set(metadata.get("finalizers", ())):
            self._to_finish[place] = None

    def _look_at_owner(self, reference: Json, namespace: str) -> None:
        owner = self._owner(reference, namespace)
        if owner is not None:
            metadata = owner[1].object["metadata"]
            if metadata.get("deletionTimestamp"):
                self._note_finalizers(owner[0], metadata)

    def _owner(self, reference: Json, namespace: str) -> tuple[Place, Stored] | None:
        """The owner that is meant, if it is there."""
        kind = self._served.get((reference["apiVersion"], reference["kind"]))
        if kind is None:
            return None
        place = (kind, namespace if kind.namespaced else "", reference["name"])
        found = self._registry.store.stored(*place)
        if found is None or found.object["metadata"]["uid"] != reference["uid"]:
            return None
        return place, found

    def _is_beyond_us(self, reference: Json, namespace: str) -> bool:
        """Whether nobody here can know that the owner is gone."""
        kind = self._served.get((reference.get("apiVersion", ""), reference.get("kind", "")))
        if kind is None:
            return True
        return self._registry.store.is_aside(kind, namespace if kind.namespaced else "", reference["name"])

    def _check(self, place: Place) -> None:
        """Delete an object whose owners are all gone, or drop its references to those that are."""
        stored = self._registry.store.stored(*place)
        references = stored.object["metadata"].get("ownerReferences", ()) if stored else ()
        if stored is None or not references:
            return
        staying, going = [], False
        for reference in references:
            if self._is_beyond_us(reference, place[1]):
                staying.append(reference)
                continue
            owner = self._owner(reference, place[1])
            if owner is None:
                continue
            metadata = owner[1].object["metadata"]
            if metadata.get("deletionTimestamp") and FOREGROUND in metadata.get("finalizers", ()):
                going = True
            else:
                staying.append(reference)
        if staying:
            if len(staying) < len(references):
                self._write(place, stored, ownerReferences=staying)
            return
        if not stored.object["metadata"].get("deletionTimestamp"):
            policy = "Foreground" if going and self._owned.get(stored.object["metadata"]["uid"]) else "Background"
            present = set(stored.object["metadata"].get("finalizers", ()))
            wanted = None if present & {FOREGROUND, ORPHAN} else policy
            delete(self._registry, Target(*place), DeleteOptions(policy=wanted))

    def _finish(self, place: Place) -> None:
        """Take the finalizers off an owner whose dependents have gone or have been let go."""
        stored = self._registry.store.stored(*place)
        if stored is None:
            return
        metadata = stored.object["metadata"]
        finalizers, uid = metadata.get("finalizers", []), metadata["uid"]
        if ORPHAN in finalizers:
            for dependent in list(self._owned.get(uid, ())):
                self._let_go(dependent, uid)
            finalizers = [each for each in finalizers if each != ORPHAN]
        if FOREGROUND in finalizers and not any(self._blocks(each, uid) for each in self._owned.get(uid, ())):
            finalizers = [each for each in finalizers if each != FOREGROUND]
        if finalizers != metadata.get("finalizers", []):
            self._write(place, stored, finalizers=finalizers)

    def _blocks(self, place: Place, uid: str) -> bool:
        found = self._registry.store.get(*place)
        references = found["metadata"].get("ownerReferences", ()) if found else ()
        return any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references)

    def _let_go(self, place: Place, uid: str) -> None:
        stored = self._registry.store.stored(*place)
        if stored is not None:
            kept = [each for each in stored.object["metadata"].get("ownerReferences", ()) if each["uid"] != uid]
            self._write(place, stored, ownerReferences=kept)

    def _write(self, place: Place, stored: Stored, **fields: Any) -> None:
        metadata = {**stored.object["metadata"], **fields}
        metadata = {key: value for key, value in metadata.items() if value or key not in fields}
        self._registry.write(Target(*place), {**stored.object, "metadata": metadata}, stored, _BY_US)


def _place(kind: Kind, metadata: Json) -> Place:
    return kind, metadata.get("namespace", ""), metadata["name"]
