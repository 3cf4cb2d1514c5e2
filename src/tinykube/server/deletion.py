"""How objects go.

Most are gone at once.  A pod on a node is given its grace period: it is marked, and its kubelet deletes it without
grace when its processes have ended.  What has finalizers is marked and stays until they are removed.  A namespace is
marked and ends when everything in it is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinykube.server import errors
from tinykube.server.kinds import EVENT, JOB, NAMESPACE, POD, RESOURCE_QUOTA, SERVICE, SERVICE_ACCOUNT, Kind
from tinykube.server.options import DeleteOptions, ListOptions
from tinykube.server.paging import Page
from tinykube.server.registry import Registry, Target, seconds
from tinykube.server.store import Stored

Json = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

# Kinds whose deletion answers with the object; for others the answer is a Status.
_RETURNED = frozenset({POD, SERVICE, SERVICE_ACCOUNT, RESOURCE_QUOTA, NAMESPACE})
_IMMORTAL = ("default", "kube-system", "kube-public")


def delete(registry: Registry, target: Target, options: DeleteOptions) -> tuple[Json | Stored, bool]:
    """Delete an object: what to answer, and whether it is gone."""
    stored = registry.find(target)
    if target.kind is NAMESPACE:
        return _delete_namespace(registry, target, stored, options)
    check(target, stored.object, options)
    return _delete(registry, target, stored, options)


def delete_collection(registry: Registry, target: Target, listed: ListOptions, options: DeleteOptions) -> Page:
    """Delete all objects that a list finds; gives that list."""
    page = registry.list(target, listed)
    for each in page.items:
        metadata = each.object["metadata"]
        one = replace(target, namespace=metadata.get("namespace", ""), name=metadata["name"])
        if registry.store.stored(one.kind, one.namespace, one.name) is not None:
            delete(registry, one, options)
    return page


def preserves(kind: Kind, options: DeleteOptions) -> bool:
    """Whether what an object owns stays although the request does not say so."""
    return kind is JOB and options.orphan is None and options.policy is None


def check(target: Target, object: Json, options: DeleteOptions) -> None:
    """Refuse if the object is not the one that the caller has seen."""
    kind, metadata = target.kind, object["metadata"]
    named = Kind(kind.group, kind.version, kind.kind, kind.kind)
    if options.uid is not None and options.uid != metadata["uid"]:
        why = f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
        raise errors.conflict(named, target.name, f"{why} The object might have been deleted and then recreated")
    if options.version is not None and options.version != metadata["resourceVersion"]:
        record = metadata["resourceVersion"]
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record"
        )
        raise errors.conflict(named, target.name, f"{why} ({record}). The object might have been modified")


def _delete(registry: Registry, target: Target, stored: Stored, options: DeleteOptions) -> tuple[Json | Stored, bool]:
    metadata = dict(stored.object["metadata"])
    graceful = target.kind is POD and _grant_grace(registry, stored.object, metadata, options)
    if graceful is None:
        return _answer(target, stored), False  # it is on its way already
    waits_for = _finalizers(target.kind, metadata.get("finalizers", []), options)
    if waits_for:
        metadata["finalizers"] = waits_for
    else:
        metadata.pop("finalizers", None)
    if waits_for and not graceful:
        _mark(registry, metadata)
    if graceful or waits_for:
        stored = registry.put(target.kind, {**stored.object, "metadata": metadata}, stored, options.dry_run)
        if waits_for or metadata["deletionGracePeriodSeconds"] > 0:
            return stored, False
    if not options.dry_run:
        stored = registry.store.delete(target.kind, target.namespace, target.name)
    return _answer(target, stored), True


def _grant_grace(registry: Registry, pod: Json, metadata: Json, options: DeleteOptions) -> bool | None:
    """Mark a pod as going, if it is to have time; None if it was marked before and nothing changes."""
    asked = options.grace if options.grace is None or options.grace >= 0 else 1
    granted = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp"):
        if not granted:
            return False
        if asked is None or asked >= granted:
            return None
        _shorten(registry, metadata, granted, asked)
        return True
    spec, status = pod["spec"], pod.get("status", {})
    period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 0)
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        period = 0
    metadata["deletionTimestamp"] = registry.now(max(0, period))
    metadata["deletionGracePeriodSeconds"] = period if period >= 0 else 1
    if metadata.get("generation"):
        metadata["generation"] += 1
    return True


def _shorten(registry: Registry, metadata: Json, granted: int, asked: int) -> None:
    """Give a pod that is going less time, counted from when it was first asked to go."""
    ends, now = seconds(metadata["deletionTimestamp"]) - granted + asked, int(registry.clock())
    metadata["deletionTimestamp"] = registry.now(max(ends - now, 0))
    metadata["deletionGracePeriodSeconds"] = 1 if ends < now and asked else asked


def _mark(registry: Registry, metadata: Json) -> None:
    """Say that an object is going, as soon as its finalizers are gone."""
    if not metadata.get("deletionTimestamp"):
        if metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = registry.now()
    metadata["deletionGracePeriodSeconds"] = 0


def _finalizers(kind: Kind, present: list[str], options: DeleteOptions) -> list[str]:
    """The finalizers that an object has once its deletion is asked for."""
    if kind is EVENT:
        return present
    orphan, foreground = ORPHAN in present, FOREGROUND in present
    if options.orphan is not None:
        orphan, foreground = options.orphan, False
    elif options.policy is not None:
        orphan, foreground = options.policy == "Orphan", options.policy == "Foreground"
    elif kind is JOB:
        orphan = not foreground  # as it was when jobs were new; see `preserves`
    wanted = [each for each in present if each not in (ORPHAN, FOREGROUND)]
    wanted += [ORPHAN] * orphan + [FOREGROUND] * foreground
    return present if set(wanted) == set(present) else wanted


def _answer(target: Target, stored: Stored) -> Json | Stored:
    if target.kind in _RETURNED:
        return stored
    metadata = stored.object["metadata"]
    details = errors.details(target.kind, metadata["name"], metadata["uid"])
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _delete_namespace(
    registry: Registry, target: Target, stored: Stored, options: DeleteOptions
) -> tuple[Json | Stored, bool]:
    metadata = stored.object["metadata"]
    for name, asked, found in (
        ("UID", options.uid, metadata["uid"]),
        ("ResourceVersion", options.version, metadata["resourceVersion"]),
    ):
        if asked is not None and asked != found:
            why = f"Precondition failed: {name} in precondition: {asked}, {name} in object meta: {found}"
            raise errors.conflict(NAMESPACE, target.name, why)
    if target.name in _IMMORTAL:
        raise errors.forbidden(NAMESPACE, target.name, "this namespace may not be deleted")
    if metadata.get("deletionTimestamp"):
        if stored.object.get("spec", {}).get("finalizers"):
            return stored, False
        return _delete(registry, target, stored, options)
    metadata = {**metadata, "deletionTimestamp": registry.now()}
    waits_for = _finalizers(NAMESPACE, metadata.get("finalizers", []), options)
    if waits_for:
        metadata["finalizers"] = waits_for
    status = {**stored.object.get("status", {}), "phase": "Terminating"}
    object = {**stored.object, "metadata": metadata, "status": status}
    return registry.put(target.kind, object, stored, options.dry_run), False
