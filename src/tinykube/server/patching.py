"""Patches as they come in requests: what their bodies say, and what the patched object means.

A patched object is read again as if it had been sent as a whole: fields are checked, defaults filled in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from tinykube.server import documents, errors, protobuf, rules, schema
from tinykube.server.kinds import Kind
from tinykube.server.options import WriteOptions
from tinykube.server.patch import golang, json_patch, merge_patch, strategic
from tinykube.server.registry import Target
from tinykube.server.rules import problem, syntax
from tinykube.server.rules.content import duplicates
from tinykube.server.schema import Field
from tinykube.server.store import encode
from tinykube.status import ApiError

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

# A refusal that names the patch names no kind.
_NOTHING = Kind("", "", "", "")

_UNREADABLE = re.compile(r'\S+ in version "[^"]*" cannot be handled as a \w+: ')
_MISMATCH = re.compile(r"json: cannot unmarshal (\w+)( [-+.e\d]+)? into .* of type (\S+)")
_FIELD = re.compile(r"into Go struct field \w+\.(\S+) of type")
_GO_KINDS = {"object": "map", "array": "slice", "number": "int64"}


def media(kind: Kind, content_type: str) -> str:
    """Which patch a body is."""
    accepted = understood(kind)
    found = content_type.partition(";")[0].strip()
    if found in accepted:
        return found
    if kind.custom:
        told = "the body of the request was in an unknown format - accepted media types include:"
        raise ApiError(415, "UnsupportedMediaType", f"{told} {', '.join(accepted)}")
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
        odd = duplicates(body) if options.validation != "Ignore" and _is_doubtful(body) else []
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
        except _Unreadable as error:
            if media == STRATEGIC:
                shown, why = golang.plain(patch), _restored(str(error), schema.of(kind), patch)
            else:
                ordered = _as_go(schema.name(kind), patched, object, media == MERGE)
                shown, why = encode(ordered).decode(), str(error)
                if media == MERGE:
                    why = _complaint(kind, ordered) or why
            raise errors.invalid(_NOTHING, "", [problem.invalid("patch", shown, why)]) from None

    return changed


def _complaint(kind: Kind, object: Any) -> str:
    """What is wrong with an object that cannot be read; which of several things, depends on the order of its keys."""
    try:
        rules.read(kind, object, "Ignore")
    except ApiError as error:
        return _UNREADABLE.sub("", error.message, count=1)
    return ""


class _Doubled(Exception):
    """A key that comes twice."""


def _look(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _Doubled


_looking = json.JSONDecoder(object_pairs_hook=_look).decode


def _is_doubtful(body: bytes) -> bool:
    """Whether some object in it has a key twice."""
    try:
        _looking(body.decode())
    except _Doubled:
        return True
    return False


class _Unreadable(Exception):
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
    except ApiError as error:
        told = _UNREADABLE.match(error.message)
        if told is None:
            raise
        raise _Unreadable(error.message[told.end() :]) from None
    odd = odd + more
    if strict and odd:
        raise _Unreadable(f"strict decoding error: {', '.join(odd)}")
    warnings += odd
    return {**object, "spec": spec} if spared else object


def _restored(why: str, root: Field, patch: Any) -> str:
    """Neither a strategic merge patch nor an apply goes through JSON: values are told by their kinds in Go."""
    found = _MISMATCH.match(why)
    if found is None:
        return why
    if _reads_itself(why, root):
        return _FIELD.sub("into Go value of type", why)
    given, wanted = _GO_KINDS.get(found[1], found[1]), found[3]
    if given == "int64" and (found[2] or _has_fraction(patch)):
        given = "float64"
    if wanted.startswith("[]"):
        return f"cannot restore slice from {given}"
    if wanted.startswith("map["):
        return f"cannot restore map from {given}"
    if any(name.endswith(f".{wanted}") for name in schema.definitions()):
        return f"cannot restore struct from: {given}"
    plain = wanted if wanted in ("bool", "int32", "int64") else "string"
    # What Go itself would turn into the other, but JSON would not.
    if (given, plain) == ("int64", "string") or (given == "float64" and plain.startswith("int")):
        return f"cannot convert {given} to {wanted}"
    return f"unrecognized type: {plain}"


def _has_fraction(value: Any) -> bool:
    """Whether a number in it is not a whole one, which Go's message does not tell."""
    if isinstance(value, dict | list):
        return any(map(_has_fraction, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def _reads_itself(why: str, root: Field) -> bool:
    """Whether the field that a message names has a type that reads JSON in its own way: times, ports, quantities."""
    here = root
    found = _FIELD.search(why)
    for name in found[1].split(".") if found else ():
        while here.properties is None and (here.items or here.values):
            here = here.items or here.values or here
        here = (here.properties or {}).get(name, here)  # an embedded struct is named, but is no field
    return here.type in ("int-or-string", "quantity") or here.format in ("date-time", "micro-time")


def _as_go(name: str, value: Any, before: Any, merged: bool) -> Any:
    """An object with its keys in the order of Go: those of structs as declared, those of what was patched sorted.

    What is new in it is `merged`, and sorted too, or stands as it was given.
    """
    if isinstance(value, list):
        earlier = before if isinstance(before, list) else []
        return [_as_go(name, each, each if each in earlier else None, merged) for each in value]
    if not isinstance(value, dict) or (before is None and not merged):
        return value
    types = protobuf.fields(name)
    order = list(types) if value == before else []
    keys = sorted(value, key=lambda key: (order.index(key) if key in order else len(order), key))
    inner = before if isinstance(before, dict) else {}
    return {key: _as_go(types.get(key, ""), value[key], inner.get(key), merged) for key in keys}


def applied(body: bytes, options: WriteOptions, warnings: list[str]) -> Json:
    """The configuration that is applied."""
    try:
        content, twice = documents.parse_yaml(body)
    except ApiError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error.message}") from None
    if twice and options.validation == "Strict":
        lines = "".join(f"\n  {each}" for each in twice)
        told = f"error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        raise errors.bad_request(f"error strict decoding YAML: {told}")
    if options.validation == "Warn":
        warnings += twice
    return content if isinstance(content, dict) else {}


def reader(kind: Kind, options: WriteOptions, warnings: list[str]) -> Callable[[Json], Json]:
    """Reads what an apply has merged."""

    def read(object: Json) -> Json:
        try:
            found, more = rules.read(kind, object, options.validation, applied=True)
        except ApiError as error:
            raise _unconvertible(kind, object, error) from None
        warnings.extend(more)
        return found

    return read


def _unconvertible(kind: Kind, object: Json, error: ApiError) -> ApiError:
    """What is applied has the right types, but a value that its field cannot have, such as a time that is none."""
    told = _UNREADABLE.match(error.message)
    if told is None:
        return error
    type = f"{'' if kind.group else '/'}{kind.api_version}, Kind={kind.kind}"
    name = f"{object['metadata'].get('namespace', '')}/{object['metadata'].get('name', '')}"
    why = _restored(error.message[told.end() :], schema.of(kind), object)
    words = f"unable to convert unstructured object to {type}: {why}"
    return ApiError(500, "", f"failed to convert new object ({name}; {type}) to proper version: {words}")


def _decoded(media: str, body: bytes) -> Any:
    try:
        if syntax.excess(body):
            raise msgspec.DecodeError("it is too deep")
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        prefix = "" if media == STRATEGIC else "error decoding patch: "
        raise errors.bad_request(f"{prefix}{syntax.fault(body)}") from None
