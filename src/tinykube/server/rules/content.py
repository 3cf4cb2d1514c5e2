"""What the content of a request says.

    bytes ──> JSON, duplicate fields noted ──> decoded by the kind's schema ──> defaults

How strict the reading is, is the client's choice: unknown and duplicate fields are refused, warned of, or ignored.  A
value of a wrong type is always refused.  Custom kinds keep what they are given; their schemas are judged later.
"""

from __future__ import annotations

import json
import re
from functools import cache
from types import NoneType
from typing import Any

import msgspec

from tinykube import depth
from tinykube.server import errors, schema
from tinykube.server.kinds import KINDS, Kind
from tinykube.server.rules import custom, defaults, problem
from tinykube.server.rules.decoding import Decoder, Reading, decoder, described
from tinykube.server.rules.problem import quote
from tinykube.server.rules.scalars import BadValue
from tinykube.server.store import decode, encode
from tinykube.status import ApiError

Json = dict[str, Any]


class NotOfKind(ApiError):
    """The content is JSON but no object of the kind; `why` says what it has that the kind does not."""

    def __init__(self, kind: Kind, why: str, given: tuple[str, str] | None = None) -> None:
        name, version = given or (kind.kind, kind.version)
        message = f"{name} in version {quote(version)} cannot be handled as a {kind.kind}: {why}"
        super().__init__(400, "BadRequest", message)
        self.why = why


def read(
    kind: Kind, content: bytes | Json, validation: str = "Warn", *, applied: bool = False
) -> tuple[Json, list[str]]:
    """An object, complete, and warnings about fields that are not in it; `validation` is Strict, Warn or Ignore.

    An `applied` object has been merged and is read in its own way.  Raises ApiError, NotOfKind above all.
    """
    odd: list[str] = []
    given = (_quickly(content) or _parsed(kind, content, odd)) if isinstance(content, bytes) else content
    if given is None and not kind.custom:
        given = {}
    _check_kind(kind, given, content)
    object = _custom(kind, given, odd, applied) if kind.custom else _decoded(kind, given, odd)
    if odd and validation == "Strict":
        raise NotOfKind(kind, f"strict decoding error: {', '.join(odd)}")
    return object, odd if validation == "Warn" else []


def _quickly(content: bytes) -> Any:
    """JSON that is written as most programs do it; None if it must be read with more care.

    What is the same when it is written again has lost nothing: no field is there twice.
    """
    try:
        given = None if depth.too_deep(content) else decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return given if encode(given) == content else None


@cache
def _decoder(kind: Kind) -> Decoder:
    return decoder(schema.of(kind))


def _decoded(kind: Kind, given: Json, odd: list[str]) -> Json:
    reading = Reading(schema.of(kind))
    try:
        object: Json = _decoder(kind)(given, reading)
    except BadValue as error:
        raise NotOfKind(kind, str(error)) from None
    if reading.wrong:
        raise NotOfKind(kind, reading.wrong)
    odd += reading.unknown
    defaults.fill(kind, object)
    object["kind"], object["apiVersion"] = kind.kind, kind.api_version
    return object


def _custom(kind: Kind, given: Json, odd: list[str], applied: bool) -> Json:
    try:
        return custom.read(kind, given, odd, applied)
    except BadValue as error:
        raise NotOfKind(kind, str(error)) from None


_HALF = re.compile(r"\\u[dD][89a-fA-F]")
# What is escaped and whole, such as a backslash or a pair; or else a half.
_HALVES = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F]).)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}",
    re.DOTALL,
)
_NO_KIND = "couldn't get version/kind; json parse error"
_SCHEME = "pkg/runtime/scheme.go:111"


def _check_kind(kind: Kind, given: Any, content: bytes | Json) -> None:
    """The content is about the kind that was asked for."""
    if type(given) is not dict:
        raise _unrecognized(kind, f"{_NO_KIND}: it is no object but {described(given)}", content)
    name, version = given.get("kind"), given.get("apiVersion")
    if name == kind.kind and version == kind.api_version:
        return
    for key, value in given.items():
        if key in ("apiVersion", "kind") and type(value) not in (str, NoneType):
            words = f"json: cannot unmarshal {described(value)} into Go struct field .{key} of type string"
            raise _unrecognized(kind, f"{_NO_KIND}: {words}", content)
    if kind.custom:
        _check_custom(kind, given, name or "", version or "", content)
    else:
        _check_built_in(kind, name or kind.kind, version or kind.api_version)


def _check_built_in(kind: Kind, name: str, version: str) -> None:
    if (name, version) == (kind.kind, kind.api_version):
        return
    short = version.rpartition("/")[2]
    why = f"no kind {quote(name)} is registered for version {quote(version)} in scheme {quote(_SCHEME)}"
    if any((each.kind, each.api_version) == (name, version) for each in KINDS):
        package = kind.group.split(".")[0] or "core"
        why = f"converting ({short}.{name}) to ({package}.{kind.kind}): unknown conversion"
    raise NotOfKind(kind, why, (name, short))


def _check_custom(kind: Kind, given: Json, name: str, version: str, content: bytes | Json) -> None:
    if not name:
        text = content.decode(errors="replace") if isinstance(content, bytes) else json.dumps(content)
        raise _unrecognized(kind, f"Object 'Kind' is missing in '{text}'", content)
    if version != kind.api_version:
        words = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise errors.bad_request(words)
    cause = problem.invalid("kind", name, f"must be {kind.kind}")
    strange = Kind(kind.group, kind.version, name, kind.plural)
    raise errors.invalid(strange, str((given.get("metadata") or {}).get("name", "")), [cause])


def _unrecognized(kind: Kind, why: str, content: bytes | Json) -> ApiError:
    excerpt = ""
    if isinstance(content, bytes):
        shown = content[:30].decode(errors="replace") if content[:1] == b"{" else content[:30].hex()
        excerpt = f" ({shown or '<empty>'}{' ...' if len(content) > 30 else ''})"
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why}{excerpt}")


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
        depth.check(content)
        given = json.loads(whole_characters(content), object_pairs_hook=once, parse_constant=_refused)
    except ValueError as error:
        raise _unrecognized(kind, f"{_NO_KIND}: {error}", content) from None
    if doubtful:
        odd += duplicates(content)
    return given


def whole_characters(content: bytes) -> str:
    """The text, with a mark in place of each half of a character, as Go does it: nobody could write that down again."""
    text = content.decode()
    if not _HALF.search(text):
        return text
    return _HALVES.sub(lambda found: found[1] or r"\ufffd", text)


def _refused(word: str) -> None:
    """Python would read NaN and Infinity, which are no JSON."""
    raise ValueError(f"{word} is no JSON")


def duplicates(content: bytes) -> list[str]:
    """The paths of fields that are there twice."""
    tree = json.loads(whole_characters(content), object_pairs_hook=lambda pairs: ("object", pairs))
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
