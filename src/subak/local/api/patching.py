"""Patches as they come in requests: what their bodies say, and what the patched object means.

A patched object is read again as if it had been sent as a whole: fields are checked, defaults filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from subak.kube.status import ApiError
from subak.local.api import documents, errors, rules, schema
from subak.local.api.kinds import Kind
from subak.local.api.options import WriteOptions
from subak.local.api.patch import golang, json_patch, merge_patch, strategic
from subak.local.api.rules import problem
from subak.local.api.store import encode

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# A refusal that names the patch names no kind.
_NOTHING = Kind("", "", "", "")


def accepted(kind: Kind) -> tuple[str, ...]:
    """The patches that a kind understands."""
    return (JSON_PATCH, MERGE, APPLY) if kind.custom else (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def change(kind: Kind, media: str, body: bytes, options: WriteOptions, warnings: list[str]) -> Callable[[Json], Json]:
    """What a patch does to an object; notes warnings when it is done."""
    patch = _decoded(media, body)

    def changed(object: Json) -> Json:
        if media == STRATEGIC:
            patched: Any = strategic.apply(object, patch, schema.of(kind))
        elif media == MERGE:
            patched = merge_patch.apply(object, patch)
        else:
            patched = json_patch.apply(object, patch)
            warnings.extend(json_patch.warnings(patch))
        return _read(kind, patched, options, warnings, golang.plain(patch) if media == STRATEGIC else None)

    return changed


def _read(kind: Kind, patched: Any, options: WriteOptions, warnings: list[str], shown: str | None) -> Json:
    """The object that a patch has made.  What is wrong with it is the patch's fault."""
    try:
        object, more = rules.read(kind, patched, options.validation)
    except ApiError as error:
        told = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        if not error.message.startswith(told):
            raise
        value = shown if shown is not None else encode(patched).decode()
        cause = problem.invalid("patch", value, error.message.removeprefix(told))
        raise errors.invalid(_NOTHING, "", [cause]) from None
    warnings += more
    return object


def applied(body: bytes) -> Json:
    """The configuration that is applied."""
    content = documents.parse(body)
    return content if isinstance(content, dict) else {}


def reader(kind: Kind, options: WriteOptions, warnings: list[str]) -> Callable[[Json], Json]:
    """Reads what an apply has merged."""

    def read(object: Json) -> Json:
        found, more = rules.read(kind, object, options.validation)
        warnings.extend(more)
        return found

    return read


def _decoded(media: str, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        prefix = "" if media == STRATEGIC else "error decoding patch: "
        raise errors.bad_request(f"{prefix}{error}") from None
