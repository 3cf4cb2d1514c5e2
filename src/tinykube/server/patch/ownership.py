"""The entries of `metadata.managedFields`: who owns which fields, and since when.

Every writer has one per operation (Update or Apply), version and subresource.  An object has at most ten entries of
updates; the oldest are joined into one.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tinykube.server.patch import fieldset, golang
from tinykube.server.patch.fieldset import Fields

Json = dict[str, Any]
Key = tuple[str, str, str, str]

MOST_UPDATERS = 10
OLD_UPDATES = "ancient-changes"


class BadManagedFields(Exception):
    """managedFields that cannot be read."""


class Entry(NamedTuple):
    """What a writer owns.  `time` is RFC 3339, or empty if the writer never changed anything."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    fields: Fields
    time: str = ""

    @property
    def key(self) -> Key:
        """What tells one entry from another.  What is applied is the same writer's in every version."""
        version = "" if self.operation == "Apply" else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def named(self) -> str:
        """The writer, in messages."""
        text = golang.quoted(self.manager)
        if self.subresource:
            text += f" with subresource {golang.quoted(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


Owners = dict[Key, Entry]


def read(written: Any) -> Owners:
    """The entries as an object has them.  Raises BadManagedFields."""
    owners: Owners = {}
    for each in written or ():
        if each.get("operation") not in ("Apply", "Update"):
            raise BadManagedFields("operation must be `Apply` or `Update`")
        if not each.get("apiVersion"):
            raise BadManagedFields("apiVersion must not be empty")
        if each.get("fieldsType") != "FieldsV1":
            raise BadManagedFields(f"invalid fieldsType {golang.quoted(each.get('fieldsType', ''))}")
        entry = Entry(
            each.get("manager", ""),
            each["operation"],
            each["apiVersion"],
            each.get("subresource", ""),
            each.get("fieldsV1") or {},
            each.get("time") or "",
        )
        owners[entry.key] = entry
    return owners


def read_foreign(written: Any) -> Owners:
    """The same for entries that a client sends: their sets may be written in other ways than ours.

    Raises BadManagedFields.
    """
    owners = read(written)
    try:
        return {key: entry._replace(fields=fieldset.canonical(entry.fields)) for key, entry in owners.items()}
    except (ValueError, AttributeError) as problem:
        raise BadManagedFields(str(problem)) from problem


def write(owners: Owners) -> list[Json]:
    """The entries as an object has them: applied ones first, then by age."""
    entries = sorted(
        owners.values(),
        key=lambda each: (each.operation, each.time, each.manager, each.api_version, each.subresource),
    )
    return [_written(entry) for entry in entries]


def _written(entry: Entry) -> Json:
    written: Json = {"manager": entry.manager, "operation": entry.operation, "apiVersion": entry.api_version}
    if entry.time:
        written["time"] = entry.time
    written["fieldsType"] = "FieldsV1"
    written["fieldsV1"] = entry.fields
    if entry.subresource:
        written["subresource"] = entry.subresource
    return written


def disowned(owners: Owners, fields: Fields, api_version: str) -> Owners:
    """The owners after these fields were taken from all.

    An owner that owns nothing any more goes, and so does one of another version, whose fields have other names.
    """
    result: Owners = {}
    for key, entry in owners.items():
        left = fieldset.difference(entry.fields, fields)
        if left and entry.api_version == api_version:
            result[key] = entry if left is entry.fields else entry._replace(fields=left)
    return result


def capped(owners: Owners) -> Owners:
    """At most ten entries of updates: the oldest of each version become one."""
    updaters = [entry for entry in owners.values() if entry.operation == "Update"]
    surplus = len(updaters) - MOST_UPDATERS
    if surplus <= 0:
        return owners
    result = dict(owners)
    first: dict[str, Key] = {}
    for entry in sorted(updaters, key=lambda each: (each.time, identity(each))):
        if surplus <= 0:
            break
        version = entry.api_version
        if version not in first:
            first[version] = entry.key
            continue
        bucket = Entry(OLD_UPDATES, "Update", version, "", {}, entry.time)
        present = result.get(bucket.key) or result.pop(first[version])
        result.pop(entry.key, None)
        result[bucket.key] = bucket._replace(fields=fieldset.union(entry.fields, present.fields))
        surplus -= 1
    return result


def identity(entry: Entry) -> str:
    """Where nothing else decides, the API server goes by this text."""
    key = {"manager": entry.manager, "operation": entry.operation}
    if entry.operation == "Update":
        key["apiVersion"] = entry.api_version
    if entry.subresource:
        key["subresource"] = entry.subresource
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))
