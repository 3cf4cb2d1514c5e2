"""What objects of custom kinds must be: what their schemas say."""

from __future__ import annotations

import re
from typing import Any

from tinykube.server import schema
from tinykube.server.kinds import Kind
from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.scalars import BadValue, time
from tinykube.server.rules.validation import metadata, names
from tinykube.server.schema import Field
from tinykube.status import Cause

Json = dict[str, Any]

_TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
_INT32 = range(-(2**31), 2**31)


def creation(problems: Problems, kind: Kind, object: Json) -> None:
    """Of a new object."""
    metadata.creation(problems, object["metadata"], kind.namespaced, names.subdomain_name, core=False)
    _object(problems, kind, object)


def update(problems: Problems, kind: Kind, new: Json, old: Json, subresource: str) -> None:
    """Of an object that is written again, or of its status."""
    metadata.update(problems, new["metadata"], old["metadata"], core=False)
    if subresource == "status":
        _status(problems, kind, new)
    else:
        _object(problems, kind, new)


def _object(problems: Problems, kind: Kind, object: Json) -> None:
    for key, field in (schema.of(kind).properties or {}).items():
        if key in object and key not in ("apiVersion", "kind", "metadata"):
            _value(problems, key, object[key], field)


def _status(problems: Problems, kind: Kind, object: Json) -> None:
    """Of the status alone, which the API server looks at as if it were all there is."""
    wrong: Problems = []
    if "status" in object:
        _value(wrong, "status", object["status"], (schema.of(kind).properties or {})["status"])
    for cause in wrong:
        message = cause.message.replace("status.", "", 1).replace("status in body", " in body", 1)
        problems.append(Cause(cause.reason, message, "status" if cause.field == "<nil>" else cause.field))


def _value(problems: Problems, path: str, value: Any, field: Field) -> None:
    wanted = _TYPES.get(field.type)
    if field.type == "int-or-string":
        if type(value) not in (int, str):
            _neither(problems, path, value)
            return
    elif wanted is not None and type(value) is not wanted:
        if "enum" in field.extra:
            problems.append(problem.unsupported(path, value, field.extra["enum"]))
        if field.format and type(value) in (bool, dict, float):
            name = "float64" if type(value) is float else ""
            words = f'Invalid value: "{name}": {path} in body must be of type {field.format}: "{name}"'
            problems.append(Cause("FieldValueTypeInvalid", words, path))
            if name:
                _out_of_range(problems, path, f"with format {field.format}")
        else:
            _mismatch(problems, path, value, field.type)
        return
    if field.extra:
        _constraints(problems, path, value, field.extra)
    if field.format == "date-time":
        _time(problems, path, value)
    if field.format == "int32" and value not in _INT32:
        _out_of_range(problems, path, "with format int32")
    if field.properties is not None:
        problems += [problem.required(f"{path}.{key}") for key in field.required if key not in value]
        for key, each in field.properties.items():
            if key in value:
                _value(problems, f"{path}.{key}", value[key], each)
    elif field.values is not None:
        for key, each in value.items():
            _value(problems, f"{path}.{key}", each, field.values)
    elif field.items is not None:
        for index, each in enumerate(value):
            _value(problems, f"{path}[{index}]", each, field.items)


def _out_of_range(problems: Problems, path: str, which: str) -> None:
    words = f"Checked value must be of type integer {which} in {path}"
    problems.append(Cause("FieldValueInvalid", f'Invalid value: "": {words}', "<nil>"))


def _neither(problems: Problems, path: str, value: Any) -> None:
    """Of a value that is neither a number nor a text: a real server says so in several ways."""
    _mismatch(problems, path, value, "integer,string")
    if value is None:
        return
    words = f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'
    problems.append(Cause("FieldValueInvalid", words, "<nil>"))
    _mismatch(problems, path, value, "integer")
    if type(value) is float:
        _out_of_range(problems, path, "(default format)")


def _mismatch(problems: Problems, path: str, value: Any, wanted: str) -> None:
    given = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    name = given.get(type(value), "null")
    words = f'Invalid value: "{name}": {path} in body must be of type {wanted}: "{name}"'
    problems.append(Cause("FieldValueTypeInvalid", words, path))


def _constraints(problems: Problems, path: str, value: Any, given: dict[str, Any]) -> None:
    if "enum" in given and value not in given["enum"]:
        problems.append(problem.unsupported(path, value, given["enum"]))
    if "minimum" in given and value < given["minimum"]:
        words = f"{path} in body should be greater than or equal to {given['minimum']}"
        problems.append(problem.invalid(path, value, words))
    if "maximum" in given and value > given["maximum"]:
        words = f"{path} in body should be less than or equal to {given['maximum']}"
        problems.append(problem.invalid(path, value, words))
    if not isinstance(value, str):
        return
    if "minLength" in given and len(value) < given["minLength"]:
        words = f"{path} in body should be at least {given['minLength']} chars long"
        problems.append(problem.invalid(path, value, words))
    if "maxLength" in given and len(value) > given["maxLength"]:
        problems.append(problem.too_long(path, given["maxLength"]))
    if "pattern" in given and not re.search(given["pattern"], value):
        problems.append(problem.invalid(path, value, f"{path} in body should match '{given['pattern']}'"))


def _time(problems: Problems, path: str, value: str) -> None:
    try:
        time(value)
    except BadValue:
        shown = problem.quote(value)
        words = f"Invalid value: {shown}: {path} in body must be of type date-time: {shown}"
        problems.append(Cause("FieldValueTypeInvalid", words, path))
