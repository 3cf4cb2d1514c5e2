"""Server-side apply: say which fields you want and with what values, and own them.

What others own and the applied object changes is a conflict, unless it is forced: then they lose it.  What the same
manager applied before and does not apply any more goes away, if nobody else owns it.  Equal values can have many
owners.

kubectl's older way, `kubectl apply` without `--server-side`, keeps what it applied in an annotation.  Fields that are
still as that annotation says are no conflicts for the manager `kubectl`, which also keeps the annotation up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import reduce
from typing import Any

import msgspec

from tinykube.server import schema as schemas
from tinykube.server.kinds import Kind
from tinykube.server.patch import conformity, fieldset, managed_fields, merging, ownership
from tinykube.server.patch.comparison import Comparison, Malformed, compare
from tinykube.server.patch.fieldset import Fields
from tinykube.server.patch.managed_fields import with_managed_fields
from tinykube.server.patch.ownership import Entry, Owners
from tinykube.server.schema import Field
from tinykube.status import ApiError, Cause

Json = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST_ANNOTATIONS = 256 * 1024
BEFORE = "before-first-apply"

_KUBECTL = "kubectl"


class _Conflicts(Exception):
    """Fields that others own, with their owners."""

    def __init__(self, conflicts: list[tuple[Entry, fieldset.Path]]) -> None:
        super().__init__()
        self.conflicts = conflicts


def apply(
    live: Json | None,
    applied: Json,
    kind: Kind,
    *,
    manager: str,
    force: bool,
    now: str,
    subresource: str = "",
) -> Json:
    """The object after `applied` was put over `live` (None: it is new), with its managedFields.

    `now` is the time in RFC 3339.  Defaults are for others to fill in.  If nothing changes, that is `live` with perhaps
    another owner.
    """
    if (applied.get("apiVersion"), applied.get("kind")) != (kind.api_version, kind.kind):
        raise ApiError(400, "BadRequest", f"invalid object type: {_type_of(applied)}")
    metadata = applied.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
        raise ApiError(400, "BadRequest", "metadata.managedFields must be nil")
    schema = schemas.of(kind)
    wrong = conformity.problem(schema, applied)
    if wrong:
        raise ApiError(500, "", f"failed to create typed patch object ({_name_of(applied)}): {wrong}")
    if metadata is None:
        applied = {**applied, "metadata": {}}  # that the name is missing is for others to tell
    entry = Entry(manager, "Apply", kind.api_version, subresource, {}, now)
    try:
        result = _applied(live, applied, kind, entry, force)
    except Malformed:
        raise _untrackable(live or {}, schema) from None
    except _Conflicts as problem:
        conflicts = _unexpected(problem.conflicts, live, schema, entry)
        if conflicts:
            raise _refusal(conflicts) from None
        result = _applied(live, applied, kind, entry, force=True)
    return _with_last_applied(result, applied) if manager == _KUBECTL else result


def _type_of(applied: Json) -> str:
    group, _, version = str(applied.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={applied.get('kind') or ''}"


def _name_of(object: Json) -> str:
    metadata = object.get("metadata")
    found = [metadata.get(key) if isinstance(metadata, dict) else "" for key in ("namespace", "name")]
    return "/".join(each if isinstance(each, str) else "" for each in found) + f"; {_type_of(object)}"


def _untrackable(live: Json, schema: Field) -> ApiError:
    """What is stored has lists with items of the same key."""
    wrong, name = conformity.problem(schema, live, stored=True), _name_of(live)
    if live["metadata"].get("managedFields"):
        return ApiError(500, "", f"failed to create typed live object ({name}): {wrong}")
    why = f"failed to convert new object ({name}) to smd typed: {wrong}"
    return ApiError(500, "", f"failed to create manager for existing fields: {why}")


def _applied(live: Json | None, applied: Json, kind: Kind, entry: Entry, force: bool) -> Json:
    schema = schemas.of(kind)
    start = managed_fields.blank(schema) if live is None else live
    owners = _owners(live, kind, entry)
    last = owners.pop(entry.key, None)
    untracked = managed_fields.untracked(kind, entry.subresource)
    wanted = fieldset.without(merging.fields_of(schema, applied), untracked.ignored)
    merged = merging.merge(schema, start, applied)
    if last is not None and last.fields:
        merged = _pruned(schema, merged, [wanted, *(each.fields for each in owners.values())], last.fields)
    changes = managed_fields.tracked_changes(kind, start, merged, entry.subresource)
    if not force:
        _look_for_conflicts(owners, changes)
    owners = ownership.disowned(owners, changes.all, entry.api_version)
    wanted = fieldset.difference(wanted, managed_fields.STAMPS)
    if wanted:
        is_same = live is not None and merged == live
        time = entry.time if not is_same else last.time if last is not None else ""
        owners[entry.key] = entry._replace(fields=wanted, time=time)
    return with_managed_fields(merged, ownership.write(owners))


def _owners(live: Json | None, kind: Kind, entry: Entry) -> Owners:
    """Who owns what before.  Fields from before the first managedFields belong to the manager `before-first-apply`."""
    if live is None:
        return {}
    try:
        owners = ownership.read(live["metadata"].get("managedFields"))
    except ownership.BadManagedFields as problem:
        raise ApiError(500, "", f"failed to decode managed fields: {problem}") from problem
    if owners:
        return {key: each for key, each in owners.items() if each.api_version == entry.api_version}
    blank = managed_fields.blank(schemas.of(kind))
    changes = managed_fields.tracked_changes(kind, blank, live, entry.subresource)
    before = entry._replace(manager=BEFORE, operation="Update", fields=changes.gained)
    return managed_fields.taken({}, changes, before)


def _pruned(schema: Field, merged: Json, owned: Iterable[Fields], last: Fields) -> Json:
    """Without what the manager applied last time, unless it has another owner now."""

    def left(gone: Fields) -> Fields:
        return fields(merging.remove(schema, merged, gone))

    def fields(value: Any) -> Fields:
        return fieldset.named(merging.fields_of(schema, value), schema)

    last = fieldset.named(last, schema)
    everything = fields(merged)
    kept = reduce(fieldset.union, (fieldset.named(each, schema) for each in owned), left(last))
    kept = left(fieldset.difference(everything, kept))
    return dict(merging.remove(schema, merged, fieldset.intersection(fieldset.difference(everything, kept), last)))


# Conflicts


def _look_for_conflicts(others: Owners, changes: Comparison) -> None:
    conflicts = [
        (each, path)
        for each in others.values()
        for path in fieldset.paths(fieldset.intersection(each.fields, changes.gained))
    ]
    if conflicts:
        raise _Conflicts(conflicts)


def _unexpected(
    conflicts: list[tuple[Entry, fieldset.Path]], live: Json | None, schema: Field, entry: Entry
) -> list[tuple[Entry, fieldset.Path]]:
    """The conflicts about fields that are not as kubectl itself last applied them in its older way."""
    if entry.manager != _KUBECTL or live is None:
        return conflicts
    try:
        last = msgspec.json.decode((live["metadata"].get("annotations") or {})[LAST_APPLIED])
        if last["apiVersion"] != entry.api_version or conformity.problem(schema, last):
            return conflicts
        changes = compare(schema, last, live)
    except (LookupError, TypeError, msgspec.DecodeError, RecursionError, Malformed):
        return conflicts
    allowed = fieldset.difference(merging.fields_of(schema, last), changes.all)
    return [(owner, path) for owner, path in conflicts if not fieldset.has(allowed, path)]


def _refusal(conflicts: list[tuple[Entry, fieldset.Path]]) -> ApiError:
    causes = [
        Cause("FieldManagerConflict", f"conflict with {owner.named()}", fieldset.printed(path))
        for owner, path in conflicts
    ]
    if len(conflicts) == 1:
        message = f"1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines = []
        for owner in sorted({owner.key: owner for owner, _ in conflicts}.values(), key=ownership.identity):
            lines.append(f"conflicts with {owner.named()}:")
            lines += [f"- {fieldset.printed(path)}" for each, path in conflicts if each.key == owner.key]
        message = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", f"Apply failed with {message}", causes=causes)


# kubectl's annotation


def _with_last_applied(result: Json, applied: Json) -> Json:
    annotations = result["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return result
    metadata = dict(applied["metadata"])
    if "annotations" in metadata:
        metadata["annotations"] = {
            key: value for key, value in (metadata["annotations"] or {}).items() if key != LAST_APPLIED
        }
    text = json.dumps({**applied, "metadata": metadata}, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    annotations = {**annotations, LAST_APPLIED: text.translate(fieldset.ESCAPED) + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    return {**result, "metadata": {**result["metadata"], "annotations": annotations}}
