"""What the content of a request says.

    bytes ──> JSON, duplicate fields noted ──> decoded by the kind's schema ──> defaults

How strict the reading is, is the client's choice: unknown and duplicate fields are refused, warned of, or ignored.  A
value of a wrong type is always refused.  Custom kinds keep what they are given; their schemas are judged later.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from subak.kube.status import ApiError
from subak.local.api import errors, schema
from subak.local.api.kinds import Kind
from subak.local.api.rules import custom, defaults
from subak.local.api.rules.decoding import Decoder, Reading, decoder
from subak.local.api.rules.problem import quote
from subak.local.api.rules.scalars import Unreadable

Json = dict[str, Any]


def read(
    kind: Kind, content: bytes | Json, validation: str = "Warn", *, partial: bool = False
) -> tuple[Json, list[str]]:
    """An object, complete, and warnings about fields that are not in it.

    `validation` is Strict, Warn or Ignore.  A `partial` object is only a wish: it is checked, but not completed.
    """
    odd: list[str] = []
    given = _parsed(kind, content, odd) if isinstance(content, bytes) else content
    _check_kind(kind, given, content)
    if kind.custom:
        object = custom.read(kind, given, odd, partial=partial)
    else:
        object = _decoded(kind, given, odd)
        if partial:
            object = given
        else:
            defaults.fill(kind, object)
            object["kind"], object["apiVersion"] = kind.kind, kind.api_version
    if odd and validation == "Strict":
        raise _unreadable(kind, f"strict decoding error: {', '.join(odd)}")
    return object, odd if validation == "Warn" else []


@cache
def _decoder(kind: Kind) -> Decoder:
    return decoder(schema.of(kind))


def _decoded(kind: Kind, given: Json, odd: list[str]) -> Json:
    reading = Reading(schema.of(kind))
    try:
        object: Json = _decoder(kind)(given, reading)
    except Unreadable as error:
        raise _unreadable(kind, str(error)) from None
    if reading.wrong:
        raise _unreadable(kind, reading.wrong)
    odd += reading.unknown
    return object


def _unreadable(kind: Kind, why: str) -> ApiError:
    return errors.bad_request(f"{kind.kind} in version {quote(kind.version)} cannot be handled as a {kind.kind}: {why}")


def _check_kind(kind: Kind, given: Any, content: bytes | Json) -> None:
    """The content is about the kind that was asked for."""
    if type(given) is not dict:
        raise _unrecognized(kind, _NOT_AN_OBJECT, content)
    name, version = given.get("kind") or kind.kind, given.get("apiVersion") or kind.api_version
    if name == kind.kind and version == kind.api_version:
        return
    for key, value in (("apiVersion", version), ("kind", name)):
        if type(value) is not str:
            where = f"cannot unmarshal {_described(value)} into Go struct field .{key} of type string"
            raise _unrecognized(kind, f"couldn't get version/kind; json parse error: json: {where}", content)
    if version == kind.api_version:
        raise errors.bad_request(f"{name} in version {quote(kind.version)} cannot be handled as a {kind.kind}")
    words = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
    raise errors.bad_request(words)


_NOT_AN_OBJECT = "couldn't get version/kind; json parse error"


def _described(value: Any) -> str:
    return {dict: "object", list: "array", bool: "bool"}.get(type(value), "number")


def _unrecognized(kind: Kind, why: str, content: bytes | Json) -> ApiError:
    told = ""
    if isinstance(content, bytes):
        shown = content[:30].decode(errors="replace") if content[:1] == b"{" else content[:30].hex()
        told = f" ({shown or '<empty>'}{' ...' if len(content) > 30 else ''})"
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why}{told}")


def _parsed(kind: Kind, content: bytes, odd: list[str]) -> Any:
    """The JSON of a request; duplicate fields are noted, and the last one counts."""
    doubtful = False

    def once(pairs: list[tuple[str, Any]]) -> Json:
        nonlocal doubtful
        found = dict(pairs)
        if len(found) != len(pairs):
            doubtful = True
        return found

    try:
        given = json.loads(content, object_pairs_hook=once)
    except ValueError as error:
        words = f"couldn't get version/kind; json parse error: {_syntax(content, error)}"
        raise _unrecognized(kind, words, content) from None
    if doubtful:
        odd += _duplicates(content)
    return given


def _duplicates(content: bytes) -> list[str]:
    """The paths of fields that are there twice."""
    tree = json.loads(content, object_pairs_hook=lambda pairs: ("object", pairs))
    found: list[str] = []

    def walk(node: Any, path: str) -> None:
        if isinstance(node, list):
            for index, each in enumerate(node):
                walk(each, f"{path}[{index}]")
        elif isinstance(node, tuple):
            seen: set[str] = set()
            for key, value in node[1]:
                here = f"{path}.{key}" if path else key
                if key in seen:
                    found.append(f"duplicate field {quote(here)}")
                seen.add(key)
                walk(value, here)

    walk(tree, "")
    return list(dict.fromkeys(found))


def _syntax(content: bytes, error: ValueError) -> str:
    """How Go tells that a text is not JSON."""
    if not isinstance(error, json.JSONDecodeError) or error.pos >= len(error.doc.rstrip()):
        return "unexpected end of JSON input"
    letter = error.doc[error.pos]
    after = "looking for beginning of value"
    if "delimiter" in error.msg:
        after = "after object key:value pair" if "','" in error.msg else "after object key"
    elif "property name" in error.msg:
        after = "looking for beginning of object key string"
    elif "Extra data" in error.msg:
        after = "after top-level value"
    return f"invalid character '{letter}' {after}"
