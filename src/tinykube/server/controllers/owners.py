"""Who owns which pods, and what owners do: adopt, let go, make, delete, and say what happened.

An owner names the pods it wants by a selector, and a pod names the one owner that looks after it (its controller).  A
pod that fits and has none is adopted; one that does not fit any more is let go.  All of this is read from the store at
the very moment it is needed and written at once, so that no controller acts on old news.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from tinykube.server import rules, selectors
from tinykube.server.deletion import delete
from tinykube.server.kinds import EVENT, KINDS, POD, REPLICA_SET, Kind
from tinykube.server.options import DeleteOptions, WriteOptions
from tinykube.server.registry import Registry, Target, seconds
from tinykube.server.rules.admission import NAMESPACE_TERMINATING
from tinykube.server.store import Change, encode
from tinykube.status import ApiError

Json = dict[str, Any]
Place = tuple[Kind, str, str]
"""Kind, namespace and name."""

BURST = 50
"""How many pods an owner makes or deletes in one turn: others want to be served too."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Between one attempt and the next, if pods fail as soon as they are made."""
_MOST_DOUBLINGS = 30
"""More make no pause longer, and after 1,000 the number would be too large for Python."""

BY_US = WriteOptions("kube-controller-manager")
_SERVED = {(kind.api_version, kind.kind): kind for kind in KINDS}
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Owners:
    """Knows which objects have which controller; `note` must hear of every change."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.store = registry.store
        self._owned: dict[str, dict[Place, None]] = {}  # by uid; those without a controller by "/" and namespace
        for kind in (POD, REPLICA_SET):
            for object in self.store.list(kind):
                self._file(kind, object)

    @property
    def now(self) -> float:
        """The time, in seconds since the epoch."""
        return self.registry.clock()

    def note(self, change: Change) -> None:
        """Take in a change of a pod or a ReplicaSet."""
        for object in (change.old, change.object):
            owned = self._owned.get(_group(object)) if object is not None else None
            if object is not None and owned is not None:
                owned.pop(place(change.kind, object), None)
                if not owned:
                    del self._owned[_group(object)]
        if change.type != "DELETED":
            self._file(change.kind, change.object)

    def _file(self, kind: Kind, object: Json) -> None:
        self._owned.setdefault(_group(object), {})[place(kind, object)] = None

    def owned(self, owner: Json, kind: Kind = POD) -> list[Json]:
        """What belongs to an owner, oldest first.  Orphans that fit are adopted, what does not fit is let go."""
        uid, selector, found = owner["metadata"]["uid"], owner["spec"].get("selector"), []
        for each in [*self._owned.get(uid, ()), *self._owned.get(f"/{owner['metadata']['namespace']}", ())]:
            object = self.store.get(*each)
            if each[0] is not kind or object is None:
                continue
            meta = object["metadata"]
            fits, mine = selectors.selects(selector, meta.get("labels", {})), _owner(object) == uid
            if fits and not mine and not (is_going(object) or is_going(owner)):
                object = self.change(kind, object, owners=[*meta.get("ownerReferences", ()), reference(owner)])
            elif mine and not fits and not is_going(owner):
                kept = [each for each in meta.get("ownerReferences", ()) if each["uid"] != uid]
                self.change(kind, object, owners=kept)
                continue
            elif not mine:
                continue
            found.append(object)
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    # Doing

    def make(self, owner: Json, pod: Json, kind: Kind = POD) -> Json:
        """Create what an owner wants.  If it is refused, an event of the owner says why."""
        namespace = owner["metadata"]["namespace"]
        pod["metadata"] = {**pod["metadata"], "namespace": namespace, "ownerReferences": [reference(owner)]}
        try:
            object, _ = rules.read(kind, {"apiVersion": kind.api_version, "kind": kind.kind, **pod})
            made = self.registry.create(Target(kind, namespace), object, BY_US).object
        except ApiError as error:
            causes = error.details.get("causes", ())
            if not any(each["reason"] == NAMESPACE_TERMINATING for each in causes):
                self.tell(owner, "Warning", "FailedCreate", f"Error creating: {error.message}")
            raise
        if kind is POD:
            self.tell(owner, "Normal", "SuccessfulCreate", f"Created pod: {made['metadata']['name']}")
        return made

    def delete(self, owner: Json, pod: Json) -> None:
        """Delete a pod of an owner, with its time to end."""
        self.remove(POD, pod)
        self.tell(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def remove(self, kind: Kind, object: Json, policy: str | None = None) -> None:
        """Delete the very object that was seen."""
        uid = object["metadata"]["uid"]
        delete(self.registry, Target(*place(kind, object)), DeleteOptions(uid=uid, policy=policy))

    def change(self, kind: Kind, object: Json, *, owners: list[Json] | None = None, **fields: Any) -> Json:
        """Write parts of an object: its `owners`, its `annotations`, its `finalizers`, or its whole `spec`."""
        meta = dict(object["metadata"])
        spec = fields.pop("spec", object.get("spec"))
        for key, value in {**({} if owners is None else {"ownerReferences": owners}), **fields}.items():
            meta[key] = value
            if not value:
                del meta[key]
        if meta == object["metadata"] and spec == object.get("spec"):
            return object
        written, _ = self.registry.update(
            Target(*place(kind, object)), {**object, "metadata": meta, "spec": spec}, BY_US
        )
        return written.object

    def report(self, kind: Kind, object: Json, status: Json) -> Json:
        """Write an object's status, if it is another than before."""
        target = Target(*place(kind, object), "status")
        stored = self.store.stored(*place(kind, object))
        if stored is None or stored.object["metadata"]["uid"] != object["metadata"]["uid"]:
            return object
        read, _ = rules.read(kind, {**stored.object, "status": status})
        if read["status"] == stored.object.get("status"):
            return stored.object
        return self.registry.update(target, {**stored.object, "status": read["status"]}, BY_US)[0].object

    def tell(self, about: Json, type: str, reason: str, message: str) -> None:
        """An event; the same again is counted."""
        meta = about["metadata"]
        name = f"{meta['name']}.{fingerprint([meta['uid'], type, reason, message])}"
        stored, now = self.store.stored(EVENT, meta["namespace"], name), self.registry.now()
        if stored is not None:
            again = {**stored.object, "count": stored.object.get("count", 1) + 1, "lastTimestamp": now}
            self.registry.put(EVENT, again, stored)
            return
        component = f"{about['kind'].lower()}-controller"
        event = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"], "kind": about["kind"], "namespace": meta["namespace"],
                "name": meta["name"], "uid": meta["uid"],
            },
            "type": type, "reason": reason, "message": message[:1024], "count": 1, "firstTimestamp": now,
            "lastTimestamp": now, "source": {"component": component}, "reportingComponent": component,
        }  # fmt: skip
        try:
            self.registry.create(Target(EVENT, meta["namespace"]), rules.read(EVENT, event)[0], BY_US)
        except ApiError as error:  # of a namespace that is about to go
            if error.code != 403:
                raise


def place(kind: Kind, object: Json) -> Place:
    """Where an object is."""
    return kind, object["metadata"].get("namespace", ""), object["metadata"]["name"]


def owner_of(object: Json) -> Place | None:
    """Where an object's controller should be, if it is of one of Kubernetes' own kinds."""
    for each in object["metadata"].get("ownerReferences", ()):
        kind = _SERVED.get((each["apiVersion"], each["kind"]))
        if each.get("controller") and kind is not None:
            return kind, object["metadata"].get("namespace", ""), each["name"]
    return None


def _owner(object: Json) -> str:
    """The uid of an object's controller."""
    references = object["metadata"].get("ownerReferences", ())
    return next((str(each["uid"]) for each in references if each.get("controller")), "")


def _group(object: Json) -> str:
    return _owner(object) or f"/{object['metadata'].get('namespace', '')}"


def reference(owner: Json) -> Json:
    """As what is owned names its controller."""
    return {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def fingerprint(content: Any, length: int = 10) -> str:
    """A few letters that stand for a content."""
    number = int.from_bytes(hashlib.sha256(encode(content)).digest()[:16])
    letters = []
    for _ in range(length):
        number, rest = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[rest])
    return "".join(letters)


# Pods


def moment(text: str | None, object: Json) -> int:
    """A moment in an object's status; its creation if the status, which anybody may write, does not say."""
    return seconds(text or object["metadata"]["creationTimestamp"])


def is_going(object: Json) -> bool:
    """Whether it is being deleted."""
    return "deletionTimestamp" in object["metadata"]


def has_ended(pod: Json) -> bool:
    """Whether its containers have ended for good."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_active(pod: Json) -> bool:
    """Whether it runs, or is to run."""
    return not is_going(pod) and not has_ended(pod)


def ready_since(pod: Json) -> int | None:
    """Since when a pod is ready."""
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "Ready" and each["status"] == "True":
            return moment(each.get("lastTransitionTime"), pod)
    return None


def is_ready(pod: Json) -> bool:
    """Whether it can do its work."""
    return ready_since(pod) is not None


def wait_for(pod: Json, owner: Json, now: float) -> float:
    """After how many seconds a pod counts as available: 0 if it does, infinite while it is not ready.

    One that is ready since a moment to come does: the clock was set back, and nobody knows for how long it has been.
    """
    since = ready_since(pod)
    if since is None:
        return float("inf")
    least = owner["spec"].get("minReadySeconds", 0)
    return max(0.0, since + least - now) if least and since <= now else 0.0


def soonest(*seconds: float | None) -> float | None:
    """The first of several moments; None if there is none."""
    return min((each for each in seconds if each is not None and each != float("inf")), default=None)


def pause_after(
    failed: Iterable[Json], now: float, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE
) -> float:
    """How long to wait before the next attempt: twice as long after each pod that failed, from the last one on.

    Those that ended at a moment to come, since the clock was set back, are not waited for.
    """
    ends = [ended_at(pod) for pod in failed]
    past = [each for each in ends if each <= now]
    if not past:
        return 0.0
    doublings = min(len(ends) - 1, _MOST_DOUBLINGS)
    return max(0.0, max(past) + min(first * 2.0**doublings, longest) - now)


def ended_at(pod: Json) -> float:
    """When a pod ended, as well as is known."""
    statuses = [*pod["status"].get("containerStatuses", ()), *pod["status"].get("initContainerStatuses", ())]
    ends = [(each.get("state", {}).get("terminated") or {}).get("finishedAt") for each in statuses]
    times = [seconds(each) for each in ends if each]
    if times:
        return float(max(times))
    changes = [each.get("lastTransitionTime") for each in pod["status"].get("conditions", ())]
    return float(max([seconds(each) for each in changes if each] or [seconds(pod["metadata"]["creationTimestamp"])]))


def condition(before: Sequence[Json], now: str, type: str, status: str, reason: str, message: str) -> list[Json]:
    """Conditions with one of them set; the time of its last change is kept while its status stays the same."""
    old = next((each for each in before if each["type"] == type), None)
    since = (old.get("lastTransitionTime") or now) if old and old["status"] == status else now
    made = {"type": type, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    return [*(each for each in before if each["type"] != type), made]
