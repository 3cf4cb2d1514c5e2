"""What writes do to `metadata.managedFields`.

An update takes the fields that it changes from all other owners; fields that it removes have no owner.  Writing the
value that is there already gains nothing.

Some fields never have an owner: names, versions and other metadata that the API server itself sets, and what a
resource ignores: an object's status, or everything but the status where `/status` is written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tinykube.server import schema as schemas
from tinykube.server.kinds import POD, Kind
from tinykube.server.patch import fieldset, ownership
from tinykube.server.patch.comparison import Comparison, Malformed, compare
from tinykube.server.patch.ownership import BadManagedFields, Entry, Owners
from tinykube.server.schema import Field

Json = dict[str, Any]


def updated(
    old: Json | None,
    new: Json,
    kind: Kind,
    *,
    manager: str,
    now: str,
    subresource: str = "",
) -> Json:
    """`new` with the managedFields that it has after `manager` created it (`old` is None) or updated it.

    `now` is the time in RFC 3339.  Fields that the server itself changes afterwards have no owner, so this comes
    before admission.  Who sends managedFields with one empty entry or none at all wants them no longer.
    """
    owners = _owners(old, new, subresource)
    if not owners and old is not None:
        return with_managed_fields(new, [])
    try:
        changes = tracked_changes(kind, blank(schemas.of(kind)) if old is None else old, new, subresource)
    except Malformed:
        return with_managed_fields(new, [])
    entry = Entry(manager or "unknown", "Update", kind.api_version, subresource, changes.gained, now)
    return with_managed_fields(new, ownership.write(taken(owners, changes, entry)))


def taken(owners: Owners, changes: Comparison, entry: Entry) -> Owners:
    """The owners after an update: `entry` is its writer, who gains what changed."""
    result = ownership.disowned(owners, changes.all, entry.api_version)
    if changes.gained:
        present = result.get(entry.key)
        result[entry.key] = (
            entry._replace(fields=fieldset.union(entry.fields, present.fields)) if present is not None else entry
        )
    return ownership.capped(result)


def settled(old: Json, new: Json) -> Json:
    """`new`, or if nothing but times in managedFields differs from `old`, with the times of `old`."""
    before, after = old["metadata"].get("managedFields"), new["metadata"].get("managedFields")
    if not before or not after or before == after or len(before) != len(after):
        return new
    pairs = zip(before, after, strict=True)
    if any({**left, "time": None} != {**right, "time": None} for left, right in pairs):
        return new
    restored = with_managed_fields(new, before)
    return restored if restored == old else new


def _owners(old: Json | None, new: Json, subresource: str) -> Owners:
    """Who owns what before the write.  A client may change that by sending managedFields."""
    live = (old or {}).get("metadata", {}).get("managedFields")
    sent = new["metadata"].get("managedFields")
    if not subresource and sent is not None and sent != live:
        if sent in ([], [{}]):
            return {}
        try:
            owners = ownership.read_foreign(sent)
        except BadManagedFields:
            owners = {}
        if owners:
            return owners
    try:
        return ownership.read(live)
    except BadManagedFields:
        return {}


def with_managed_fields(object: Json, written: list[Json]) -> Json:
    """The object with these managedFields, or with none."""
    metadata = {key: value for key, value in object["metadata"].items() if key != "managedFields"}
    if written:
        metadata["managedFields"] = written
    return {**object, "metadata": metadata}


# What is tracked

_STAMPS = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
    "resourceVersion",
)  # fmt: skip

STAMPS = fieldset.of_paths([("apiVersion",), ("kind",), ("metadata",), *(("metadata", each) for each in _STAMPS)])
"""What the server itself sets."""


class Untracked:
    """What has no owner when a resource is written: the stamps, and ignored fields with all below them."""

    def __init__(self, *ignored: tuple[str, ...]) -> None:
        self.ignored = fieldset.of_paths(ignored)
        self._top = frozenset(["apiVersion", "kind", *(path[0] for path in ignored if len(path) == 1)])
        self._metadata = frozenset([*_STAMPS, *(path[1] for path in ignored if len(path) == 2)])

    def stripped(self, object: Json) -> Json:
        """The object without all that."""
        result = {key: value for key, value in object.items() if key not in self._top}
        if "metadata" not in self._top:
            metadata = object.get("metadata") or {}
            result["metadata"] = {key: value for key, value in metadata.items() if key not in self._metadata}
        return result


@cache
def untracked(kind: Kind, subresource: str) -> Untracked:
    """What has no owner when a resource is written."""
    if subresource == "status":
        if kind is POD:
            return Untracked(("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences"))
        return Untracked(("spec",), ("metadata",)) if kind.custom else Untracked(("spec",))
    return Untracked(("status",)) if kind.status else Untracked()


def tracked_changes(kind: Kind, old: Json, new: Json, subresource: str) -> Comparison:
    """What differs between two versions of an object, of what is tracked.  Raises Malformed."""
    skipped = untracked(kind, subresource)
    return compare(schemas.of(kind), skipped.stripped(old), skipped.stripped(new))


def blank(schema: Field) -> Any:
    """A new object before anything is set: what its type always writes, at its zero."""
    match schema.type:
        case "object" if schema.properties is not None:
            return {key: blank(each) for key, each in schema.properties.items() if each.empty == "always"}
        case "string" if not schema.format.endswith("time"):
            return ""
        case "integer" | "number" | "int-or-string":
            return 0
        case "boolean":
            return False
        case "quantity":
            return "0"
        case _:
            return None
