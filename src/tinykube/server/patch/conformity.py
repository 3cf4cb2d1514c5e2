"""Whether a value is what its schema says: server-side apply takes nothing that it could not own field by field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tinykube.server.patch import fieldset, golang
from tinykube.server.patch.comparison import Malformed, is_granular, step_to
from tinykube.server.schema import ANY, Field

_ANYTHING = ("any", "int-or-string")
"""The documents give the second no type; it is checked later."""

_NUMBERS = ("integer", "number")
_REPEATED = "duplicate entries for key"


def problem(schema: Field, value: Any, *, stored: bool = False) -> str:
    """What is wrong with an object, in the API server's words; nothing if all is well.

    In a `stored` one, items of lists may be there twice.
    """
    found = [each for each in _problems(schema, value, "") if not (stored and _REPEATED in each)]
    return found[0] if len(found) == 1 else "\n  ".join(["errors:", *found]) if found else ""


def _problems(schema: Field, value: Any, path: str) -> Iterator[str]:
    if value is None or schema.type in _ANYTHING:
        return
    if schema.type == "object":
        if isinstance(value, dict):
            yield from _object_problems(schema, value, path)
        else:
            yield f"{path}: expected map, got &{{{golang.plain(value)}}}"
    elif schema.type == "array":
        if isinstance(value, list):
            yield from _list_problems(schema, value, path)
        else:
            yield f"{path}: expected list, got &{{{golang.plain(value)}}}"
    else:
        wrong = _scalar_problem(schema, value)
        if wrong:
            yield f"{path}: {wrong}"


def _object_problems(schema: Field, value: dict[str, Any], path: str) -> Iterator[str]:
    declared = schema.properties or {}
    is_free = schema.preserve_unknown or schema.values is not None or schema.properties is None
    for key, each in value.items():
        below = f"{path}.{key}"
        if key in declared:
            yield from _problems(declared[key], each, below)
        elif is_free:
            yield from _problems(schema.values or ANY, each, below)
        else:
            yield f"{below}: field not declared in schema"
            return


def _list_problems(schema: Field, value: list[Any], path: str) -> Iterator[str]:
    seen = set()
    for index, each in enumerate(value):
        step = f"i:{index}"
        if is_granular(schema):
            try:
                step = step_to(schema, each)
            except Malformed as problem:
                yield f"{path}: element {index}: {problem}"
                return
            if step in seen:
                yield f"{path}: {_REPEATED} {fieldset.printed([step])}"
            seen.add(step)
        yield from _problems(schema.items or ANY, each, path + fieldset.printed([step]))


def _scalar_problem(schema: Field, value: Any) -> str:
    if schema.type in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"expected numeric (int or float), got {golang.type_name(value)}"
    elif schema.type == "boolean":
        if not isinstance(value, bool):
            return f"expected boolean, got &{{{golang.plain(value)}}}"
    elif schema.type == "string" and schema.format in ("", "byte"):
        if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{golang.literal(value)}}}"
    elif isinstance(value, dict | list):
        return f"expected any scalar, got &{{{golang.plain(value)}}}"
    return ""
