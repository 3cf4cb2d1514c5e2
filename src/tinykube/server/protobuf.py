"""Bodies that come as protobuf, turned into what they would be as JSON.

kubectl's own commands (`kubectl create configmap`, `kubectl auth can-i`) send nothing else.  Answers are JSON, which
every client takes as well.  `protobuf.json` says which number is which field.
"""

from __future__ import annotations

import struct
import time
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tinykube.depth import too_deep
from tinykube.server import errors

Json = dict[str, Any]

_MAGIC = b"k8s\x00"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_UNKNOWN = "io.k8s.apimachinery.pkg.runtime.Unknown"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBERS = ("bool", "int32", "int64")
_SECONDS = range(-62135596800, 253402300800)
"""Of the years 1 to 9999: RFC 3339 has no other."""


class _Malformed(Exception):
    """Bytes that are no message."""


class MessageField(msgspec.Struct, array_like=True):
    """A field of a message; one without a name is shown as part of the message itself."""

    number: int
    name: str
    type: str
    shape: str


@cache
def _messages() -> dict[str, dict[int, MessageField]]:
    text = Path(__file__).with_name("protobuf.json").read_bytes()
    found = msgspec.json.decode(text, type=dict[str, list[MessageField]])
    return {name: {field.number: field for field in fields} for name, fields in found.items()}


def parse(body: bytes) -> Json:
    """The object that a body is."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = _message(_UNKNOWN, memoryview(body)[len(_MAGIC) :], raw=True)
        about = envelope.get("typeMeta", {})
        api_version, kind = about.get("apiVersion", ""), about.get("kind", "")
        name = _name(api_version, kind)
        if name not in _messages():
            raise errors.bad_request(f'no kind "{kind}" is registered for version "{api_version}"')
        return {"kind": kind, "apiVersion": api_version, **_message(name, envelope.get("raw", b""))}
    except (_Malformed, IndexError, UnicodeDecodeError, struct.error, msgspec.DecodeError) as error:
        raise errors.bad_request(f"unable to read the body as protobuf: {error}") from None


def _name(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return _META + kind
    group, _, version = api_version.rpartition("/")
    return f"io.k8s.api.{group.split('.')[0] or 'core'}.{version}.{kind}"


def _message(name: str, data: Any, raw: bool = False) -> Json:
    """A message as a JSON object.  `raw`: bytes stay as they are."""
    fields, found = _messages()[name], Json()
    for number, value in _parts(memoryview(data)):
        field = fields.get(number)
        if field is None:
            continue
        if field.shape == "map":
            entry = dict(_parts(_checked("map", value)))
            text = str(_checked("string", entry.get(1, b"")), "utf-8")
            found.setdefault(field.name, {})[text] = _value(field.type, entry.get(2, _empty(field.type)))
        elif field.shape == "list":
            found.setdefault(field.name, []).append(_value(field.type, value))
        elif not field.name:
            found.update(_message(field.type, _checked(field.type, value)))
        else:
            plain = raw and field.type == "bytes"
            found[field.name] = bytes(_checked("bytes", value)) if plain else _value(field.type, value)
    return found


def _empty(type: str) -> Any:
    return 0 if type in _NUMBERS else memoryview(b"")


def _checked(type: str, value: Any) -> Any:
    """The value, which must have come as its type says."""
    if isinstance(value, int) != (type in _NUMBERS):
        raise _Malformed(f"wire type of a field of type {type}")
    return value


def _value(type: str, value: Any) -> Any:
    _checked(type, value)
    match type:
        case "string":
            return str(value, "utf-8")
        case "bytes":
            return b64encode(value).decode()
        case "bool":
            return value != 0
        case "int32" | "int64":
            return value - 2**64 if value >= 2**63 else value
        case "double":
            return struct.unpack("<d", value)[0]
    return _special(type, value)


def _special(type: str, value: Any) -> Any:
    """A message that JSON shows as a text, a number or something else."""
    short = type.rpartition(".")[2]
    if type in (_META + "Time", _META + "MicroTime"):
        return _moment(_message(type, value), short == "MicroTime")
    if type == _META + "FieldsV1":
        raw = _message(type, value, raw=True).get("Raw") or b"null"
        if too_deep(raw):
            raise _Malformed("fieldsV1 exceeded max depth")
        return msgspec.json.decode(raw)
    found = _message(type, value)
    if short == "Quantity":
        return found.get("string", "0")
    if short == "IntOrString":
        return found.get("strVal", "") if found.get("type") else found.get("intVal", 0)
    if short == "ExtraValue":
        return found.get("items", [])
    return found


def _moment(parts: Json, micro: bool) -> str | None:
    seconds, nanos = parts.get("seconds", 0), parts.get("nanos", 0)
    if not seconds and not nanos:
        return None
    if seconds not in _SECONDS or nanos not in range(10**9):
        raise _Malformed("a moment of no year")
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanos // 1000:06d}Z" if micro else f"{text}Z"


def _parts(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The numbers and the values of a message's fields."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise _Malformed(f"wire type {wire} of field {number}")
        if position + size > end:
            raise _Malformed(f"field {number} is cut off")
        yield number, data[position : position + size]
        position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise _Malformed("a number is too long")
