"""Other shapes of objects than their own: rows of a Table, or their metadata alone.

A Table is what `kubectl get` prints.  Its first rows in a watch come with the columns, later ones without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinykube.server import columns, errors
from tinykube.server.kinds import DAEMON_SET, POD, Kind
from tinykube.server.rules.defaults.workload import TEMPLATE_GENERATION
from tinykube.server.rules.problem import quote
from tinykube.status import ApiError

Json = dict[str, Any]

_ENDINGS = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def partial(object: Json, version: str) -> Json:
    """An object's metadata alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": _metadata(object),
    }


def _metadata(object: Json) -> Json:
    """Without what a real server keeps in another field and shows as an annotation of the whole object only."""
    metadata: Json = object["metadata"]
    if object["kind"] != DAEMON_SET.kind or TEMPLATE_GENERATION not in metadata.get("annotations", {}):
        return metadata
    metadata = dict(metadata)
    kept = {key: value for key, value in metadata.pop("annotations").items() if key != TEMPLATE_GENERATION}
    return {**metadata, "annotations": kept} if kept else metadata


def partial_list(objects: Sequence[Json], metadata: Json, version: str) -> Json:
    """The metadata of the objects of a list."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "items": [partial(each, version) for each in objects] or None,
    }


def check(include: str) -> str:
    """What a row is to carry of its object: Metadata, None or Object."""
    if include in ("", "Metadata", "None", "Object"):
        return include or "Metadata"
    wrong = f"includeObject: Invalid value: {quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
    raise errors.bad_request(f"Unable to convert to Table as requested: {wrong}")


def table(
    kind: Kind, objects: Sequence[Json], metadata: Json, *, include: str, version: str, now: float, headers: bool = True
) -> Json:
    """The objects as rows."""
    defined, cells = columns.of(kind)
    made: Json = {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
    made["columnDefinitions"] = [each.definition() for each in defined] if headers else None
    made["rows"] = [_row(kind, each, cells(each, now), include, version) for each in objects]
    return made


def _row(kind: Kind, object: Json, cells: list[Any], include: str, version: str) -> Json:
    row: Json = {"cells": cells}
    phase = object.get("status", {}).get("phase") if kind is POD else ""
    if phase in _ENDINGS:
        row["conditions"] = [
            {"type": "Completed", "status": "True", "reason": phase, "message": _ENDINGS[phase]},
        ]
    if include == "Object":
        row["object"] = object
    else:
        row["object"] = partial(object, version) if include == "Metadata" else None
    return row


def not_a_list(kind: Kind) -> ApiError:
    """The metadata of a list was asked for, but the answer is one object."""
    shown = f"you requested PartialObjectMetadataList, but the requested object is not a list ({_go(kind, '')})"
    return ApiError(406, "NotAcceptable", shown)


def is_a_list(kind: Kind) -> ApiError:
    """The metadata of one object was asked for, but the answer is a list."""
    shown = f"you requested PartialObjectMetadata, but the requested object is a list ({_go(kind, 'List')})"
    return ApiError(406, "NotAcceptable", shown)


def _go(kind: Kind, suffix: str) -> str:
    """The type that the API server's own code has for it."""
    if kind.custom:
        return f"*unstructured.Unstructured{suffix}"
    package = "core" if kind.kind == "Event" else kind.group.partition(".")[0] or "core"
    return f"*{package}.{kind.kind}{suffix}"
