"""What the content of a request says about a custom kind.

Nothing is turned into structs here: values stay as they are.  Fields that the schema does not know are dropped, unless
it keeps them, and so are nulls, but not those of applied objects, which do not go through JSON; defaults are those of
the schema.  The metadata is every object's.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from tinykube.server import schema
from tinykube.server.kinds import Kind
from tinykube.server.rules.decoding import Decoder, Reading, decoder
from tinykube.server.rules.problem import quote
from tinykube.server.rules.scalars import BadValue
from tinykube.server.schema import Field

Json = dict[str, Any]

_NOTHING = Field()


def read(kind: Kind, given: Json, odd: list[str], applied: bool = False) -> Json:
    """An object with the fields that its schema knows; notes the others."""
    field = schema.of(kind)
    object: Json = {"apiVersion": kind.api_version, "kind": kind.kind}
    unknown: list[str] = []
    for key, value in given.items():
        known = (field.properties or {}).get(key)
        if known is None:
            unknown.append(f"unknown field {quote(key)}")
        elif key == "metadata" and value is not None:
            object[key] = _metadata(kind, value, odd)
        elif key not in ("apiVersion", "kind", "metadata"):
            if applied:
                object[key] = copy.deepcopy(value)
            elif value is not None:
                object[key] = _pruned(value, known, key, unknown)
    odd += sorted(unknown)
    object.setdefault("metadata", {})
    _complete(object, field)
    return object


@cache
def _metadata_decoder(kind: Kind) -> tuple[Field, Decoder]:
    field = (schema.of(kind).properties or {})["metadata"]
    return field, decoder(field)


def _metadata(kind: Kind, value: Any, odd: list[str]) -> Json:
    field, read = _metadata_decoder(kind)
    reading = Reading(field)
    object: Json = read(value, reading)
    if reading.wrong or reading.unknown:
        reading = Reading(field)
        read(_sorted(value), reading)  # it has been a map in Go by now, so this is what is met first
    if reading.wrong:
        raise BadValue(reading.wrong)
    odd += [each.replace('"', '"metadata.', 1) for each in reading.unknown]
    return object


def _sorted(value: Any) -> Any:
    if type(value) is dict:
        return {key: _sorted(each) for key, each in sorted(value.items())}
    return [_sorted(each) for each in value] if type(value) is list else value


def _pruned(value: Any, field: Field, path: str, odd: list[str]) -> Any:
    if type(value) is dict:
        return _pruned_fields(value, field, path, odd)
    if type(value) is list and not (field.preserve_unknown and field.items is None):
        items = field.items or _NOTHING
        return [_pruned(each, items, f"{path}[{index}]", odd) for index, each in enumerate(value)]
    return value


def _pruned_fields(value: Json, field: Field, path: str, odd: list[str]) -> Json:
    properties = field.properties or {}
    kept = {}
    for key, each in value.items():
        known = properties.get(key, field.values)
        if known is not None:
            if each is not None:
                kept[key] = _pruned(each, known, f"{path}.{key}", odd)
        elif field.preserve_unknown:
            kept[key] = each
        else:
            odd.append(f"unknown field {quote(f'{path}.{key}')}")
    return kept


def _complete(value: Any, field: Field) -> None:
    """Fill in defaults."""
    if type(value) is dict and field.properties is not None:
        for key, each in field.properties.items():
            if each.default is not None and key != "metadata" and value.get(key) is None:
                value[key] = copy.deepcopy(each.default)
            if key in value and key != "metadata":
                _complete(value[key], each)
    elif type(value) is dict and field.values is not None:
        for each_value in value.values():
            _complete(each_value, field.values)
    elif type(value) is list and field.items is not None:
        for each_value in value:
            _complete(each_value, field.items)
