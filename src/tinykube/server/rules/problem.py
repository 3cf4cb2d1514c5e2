"""What is wrong with a field, in the API server's words.

Each function makes one `Cause`; the object's validation collects them and `errors.invalid` tells them all at once.
Values are printed as Go prints them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tinykube.status import Cause

Problems = list[Cause]

IMMUTABLE = "field is immutable"

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES["\v"] = "\\v"
_HTML = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def required(path: str, detail: str = "") -> Cause:
    """Nothing was given."""
    return Cause("FieldValueRequired", _detailed("Required value", detail), path)


def invalid(path: str, value: Any, detail: str) -> Cause:
    """The value is malformed or out of bounds."""
    return Cause("FieldValueInvalid", f"Invalid value: {printed(value)}: {detail}", path)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Cause:
    """The value is none of a known few."""
    listed = ", ".join(quote(each) for each in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {printed(value)}: supported values: {listed}", path)


def duplicate(path: str, value: Any, detail: str = "") -> Cause:
    """The value was given before."""
    return Cause("FieldValueDuplicate", _detailed(f"Duplicate value: {printed(value)}", detail), path)


def not_found(path: str, value: Any, detail: str = "") -> Cause:
    """The value refers to something that is not there."""
    return Cause("FieldValueNotFound", _detailed(f"Not found: {printed(value)}", detail), path)


def forbidden(path: str, detail: str) -> Cause:
    """The value may be right elsewhere, but not here."""
    return Cause("FieldValueForbidden", _detailed("Forbidden", detail), path)


def too_long(path: str, limit: int) -> Cause:
    """The value has too many bytes; it is not repeated."""
    return Cause(
        "FieldValueTooLong", f"Too long: may not be more than {limit} {'byte' if limit == 1 else 'bytes'}", path
    )


def too_many(path: str, count: int, limit: int) -> Cause:
    """The list has too many items."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", path)


def internal(path: str, detail: str) -> Cause:
    """A check could not be made."""
    return Cause("InternalError", f"Internal error: {detail}", path)


def immutable(problems: Problems, path: str, new: Any, old: Any) -> None:
    """Note if a value that must stay is not what it was; no text and an empty one are the same."""
    if new != old and not (new in (None, "") and old in (None, "")):
        problems.append(invalid(path, "" if new is None and isinstance(old, str) else new, IMMUTABLE))


def each(problems: Problems, path: str, value: Any, details: Iterable[str]) -> None:
    """Note all that is wrong with one value."""
    for detail in details:
        problems.append(invalid(path, value, detail))


def quote(text: str) -> str:
    """A text as Go quotes it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def printed(value: Any) -> str:
    """A value as it stands in a message."""
    if isinstance(value, str):
        return quote(value)
    return msgspec.json.encode(value).decode().translate(_HTML)


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    number = ord(letter)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _detailed(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what
