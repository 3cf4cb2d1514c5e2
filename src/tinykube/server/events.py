"""Events have two names: `v1` and `events.k8s.io/v1` show the same objects, with other names for some fields.

They are stored as `v1`.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.kinds import EVENT, NEW_EVENT, Kind
from tinykube.server.store import Stored, encode

Json = dict[str, Any]

# v1 -> events.k8s.io/v1
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}


def stored_as(kind: Kind) -> Kind:
    """The version that is stored."""
    return EVENT if kind is NEW_EVENT else kind


def to_stored(kind: Kind, object: Json) -> Json:
    """An object as it is stored."""
    return _renamed(EVENT, object, _BACK) if kind is NEW_EVENT else object


def from_stored(kind: Kind, object: Json) -> Json:
    """A stored object as a version shows it."""
    return _renamed(NEW_EVENT, object, _NAMES) if kind is NEW_EVENT else object


def shown(kind: Kind, stored: Stored) -> Stored:
    """The same with its bytes."""
    if kind is not NEW_EVENT:
        return stored
    object = from_stored(kind, stored.object)
    return Stored(object, stored.revision, encode(object))


def disowned(kind: Kind, object: Json) -> Json:
    """An event that is written, without owners that it got in the other group: their fields have other names."""
    if kind not in (EVENT, NEW_EVENT) or "managedFields" not in object["metadata"]:
        return object
    owners = [each for each in object["metadata"]["managedFields"] if each.get("apiVersion") == kind.api_version]
    metadata = {key: value for key, value in object["metadata"].items() if key != "managedFields"}
    return {**object, "metadata": {**metadata, **({"managedFields": owners} if owners else {})}}


def _renamed(kind: Kind, object: Json, names: dict[str, str]) -> Json:
    renamed = {names.get(key, key): value for key, value in object.items()}
    for name in ("reportingController" if kind is NEW_EVENT else "reportingComponent", "reportingInstance"):
        # Only v1 has them even if they are empty.
        if kind is EVENT:
            renamed.setdefault(name, "")
        elif not renamed.get(name):
            renamed.pop(name, None)
    return {"kind": kind.kind, "apiVersion": kind.api_version} | {
        key: value for key, value in renamed.items() if key not in ("kind", "apiVersion")
    }
