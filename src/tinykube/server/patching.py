"""Patches as they come in requests: what their bodies say, and what the patched object means.

A patched object is read again as if it had been sent as a whole: fields are checked, defaults filled in.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from tinykube import depth
from tinykube.server import documents, errors, rules, schema
from tinykube.server.kinds import Kind
from tinykube.server.options import WriteOptions
from tinykube.server.patch import json_patch, merge_patch, strategic
from tinykube.server.registry import Target
from tinykube.server.rules import problem
from tinykube.server.rules.content import duplicates, whole_characters
from tinykube.server.store import encode
from tinykube.status import ApiError

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# A refusal that names the patch names no kind.
_NOTHING = Kind("", "", "", "")


def media(kind: Kind, content_type: str) -> str:
    """Which patch a body is."""
    accepted = understood(kind)
    found = content_type.partition(";")[0].strip()
    if found in accepted:
        return found
    if kind.custom:
        message = "the body of the request was in an unknown format - accepted media types include:"
        raise ApiError(415, "UnsupportedMediaType", f"{message} {', '.join(accepted)}")
    raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def understood(kind: Kind) -> tuple[str, ...]:
    """The patches that a kind understands."""
    return (JSON_PATCH, MERGE, APPLY) if kind.custom else (JSON_PATCH, MERGE, STRATEGIC, APPLY)


def change(
    target: Target, media: str, body: bytes, options: WriteOptions, warnings: list[str]
) -> Callable[[Json], Json]:
    """What a patch does to an object; notes warnings when it is done."""
    kind = target.kind

    def changed(object: Json) -> Json:
        patch = _decoded(media, body)
        odd = duplicates(body) if options.validation != "Ignore" and _is_doubtful(patch, body) else []
        patched: Any
        if media == STRATEGIC:
            patched, patch = strategic.applied(object, patch, schema.of(kind))
        elif media == MERGE:
            patched = merge_patch.apply(object, patch)
        else:
            patched = _operated(object, patch)
            odd = [f"json patch {each}" for each in odd] + json_patch.warnings(patch)
        try:
            return _read(target, patched, object, options, odd, warnings)
        except _BadPatch as error:
            shown = encode(patch if media == STRATEGIC else patched).decode()
            raise errors.invalid(_NOTHING, "", [problem.invalid("patch", shown, str(error))]) from None

    return changed


class _Doubled(Exception):
    """A key that comes twice."""


def _look(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _Doubled


_looking = json.JSONDecoder(object_pairs_hook=_look).decode


def _is_doubtful(patch: Any, body: bytes) -> bool:
    """Whether some object in it has a key twice."""
    if encode(patch) == body:  # it is written as most programs do it, and nothing was lost
        return False
    try:
        _looking(body.decode())
    except _Doubled:
        return True
    return False


class _BadPatch(Exception):
    """What is wrong with a patched object is the patch's fault."""


def _operated(object: Json, operations: Any) -> Any:
    try:
        return json_patch.apply(object, operations)
    except ApiError as error:
        raise ApiError(error.code, error.reason, error.message, {} if error.code == 422 else None) from None


def _read(
    target: Target, patched: Any, before: Json, options: WriteOptions, odd: list[str], warnings: list[str]
) -> Json:
    """The object that a patch has made; `odd` is what was odd about the patch itself."""
    strict = options.validation == "Strict"
    spec = before.get("spec")
    # A write of the status takes nothing from the spec: most need not read it.
    spared = target.subresource == "status" and spec and isinstance(patched, dict) and patched.get("spec") is spec
    if spared:
        patched = {key: value for key, value in patched.items() if key != "spec"}
    try:
        object, more = rules.read(target.kind, patched, "Warn" if strict else options.validation)
    except rules.NotOfKind as error:
        raise _BadPatch(error.why) from None
    odd = odd + more
    if strict and odd:
        raise _BadPatch(f"strict decoding error: {', '.join(odd)}")
    warnings += odd
    return {**object, "spec": spec} if spared else object


def applied(body: bytes, options: WriteOptions, warnings: list[str]) -> Json:
    """The configuration that is applied."""
    try:
        content, twice = documents.parse_yaml(body)
    except ApiError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error.message}") from None
    if twice and options.validation == "Strict":
        lines = "".join(f"\n  {each}" for each in twice)
        message = f"error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        raise errors.bad_request(f"error strict decoding YAML: {message}")
    if options.validation == "Warn":
        warnings += twice
    return content if isinstance(content, dict) else {}


def reader(kind: Kind, options: WriteOptions, warnings: list[str]) -> Callable[[Json], Json]:
    """Reads what an apply has merged."""

    def read(object: Json) -> Json:
        try:
            found, more = rules.read(kind, object, options.validation, applied=True)
        except rules.NotOfKind as error:
            raise _unconvertible(kind, object, error.why) from None
        warnings.extend(more)
        return found

    return read


def _unconvertible(kind: Kind, object: Json, why: str) -> ApiError:
    """What is applied has the right types, but a value that its field cannot have, such as a time that is none."""
    type = f"{'' if kind.group else '/'}{kind.api_version}, Kind={kind.kind}"
    name = f"{object['metadata'].get('namespace', '')}/{object['metadata'].get('name', '')}"
    words = f"unable to convert unstructured object to {type}: {why}"
    return ApiError(500, "", f"failed to convert new object ({name}; {type}) to proper version: {words}")


def _decoded(media: str, body: bytes) -> Any:
    try:
        depth.check(body)
        return msgspec.json.decode(whole_characters(body))
    except (msgspec.DecodeError, ValueError) as error:
        prefix = "" if media == STRATEGIC else "error decoding patch: "
        raise errors.bad_request(f"{prefix}{error}") from None
