"""Reads a request's JSON as an object of a kind: known fields of the right types; notes all others.

An API server decodes into Go structs, and it shows: what is null counts as absent, what is empty is dropped unless the
field is a pointer, structs are there even if the request has none.  A schema becomes a closure per object, made when it
is first met, so that reading a pod costs little more than walking it.

The first value of a wrong type is an error in Go's words.  Unknown fields are collected; the caller decides whether
they are errors, warnings or nothing.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

from tinykube.server.rules import scalars
from tinykube.server.rules.problem import quote
from tinykube.server.rules.scalars import BadValue
from tinykube.server.schema import Field

_NAMES = {dict: "object", list: "array", str: "string", bool: "bool"}
_INT = {"uint8": (0, 255), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Step:
    """A key of a map, as part of a path."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class Number:
    """A number that does not fit its field; messages tell which."""

    def __init__(self, value: float) -> None:
        self.value = value


class Reading:
    """The state of one reading: where it is, and what was odd on the way."""

    __slots__ = ("root", "stack", "unknown", "wrong")

    def __init__(self, root: Field) -> None:
        self.root = root
        self.stack: list[str | int | Step] = []
        self.unknown: list[str] = []
        self.wrong = ""

    def path(self, key: str = "") -> str:
        """Where the reading is, with indices: `spec.containers[0].image`."""
        text = ""
        for step in [*self.stack, key] if key else self.stack:
            name = step.key if isinstance(step, Step) else step
            text += f"[{name}]" if isinstance(name, int) else f".{name}" if text else name
        return text

    def odd(self, key: str) -> None:
        """Note an unknown field."""
        self.unknown.append(f"unknown field {quote(self.path(key))}")

    def mismatch(self, value: Any, go: str) -> None:
        """Note a value of a wrong type; only the first counts."""
        if not self.wrong:
            self.wrong = self.mismatched(value, go)

    def mismatched(self, value: Any, go: str) -> str:
        """How Go says that a value is of a wrong type."""
        return f"json: cannot unmarshal {described(value)} into {self._place()} of type {go}"

    def _place(self) -> str:
        """The innermost struct and the path of fields that lead to the value."""
        here, struct = self.root, ""
        fields = []
        for step in self.stack:
            inner: Field | None
            if isinstance(step, int):
                inner = here.items
            elif isinstance(step, Step):
                inner = here.values
            else:
                struct = here.go.rsplit(".", 1)[-1]
                inner = (here.properties or {}).get(step)
                if inner is not None and inner.embedded:
                    fields.append(inner.embedded)
                fields.append(step)
            here = inner or here
        return f"Go struct field {struct}.{'.'.join(fields)}" if struct else "Go value"


Decoder = Callable[[Any, Reading], Any]


def described(value: Any) -> str:
    """What Go calls a JSON value; of a number it tells which where it is not a whole one."""
    return f"number {value.value}" if isinstance(value, Number) else _NAMES.get(type(value), "number")


def decoder(field: Field) -> Decoder:
    """Reads values of a field; nulls never reach it."""
    if field.properties is not None:
        return _struct(field)
    if field.type == "array":
        return _array(field)
    if field.values is not None:
        return _map(field)
    match field.type, field.format:
        case "string", "date-time":
            return _text(field, scalars.time)
        case "string", "micro-time":
            return _text(field, scalars.micro_time)
        case "string", "byte":
            return _bytes()
        case "string", _:
            return _of_type(field, str)
        case "boolean", _:
            return _of_type(field, bool)
        case "integer", _:
            return _integer(field)
        case "quantity", _:
            return _quantity
        case "int-or-string", _:
            return _int_or_string
    return lambda value, reading: value


def zero(field: Field) -> Any:
    """What a field holds that is not set."""
    if field.properties is not None:
        return {key: zero(each) for key, each in field.properties.items() if each.empty == "always"}
    if field.format in ("date-time", "micro-time"):
        return None
    return {"string": "", "boolean": False, "integer": 0, "int-or-string": 0, "quantity": "0"}.get(field.type)


def _struct(field: Field) -> Decoder:
    properties = field.properties or {}
    decoders: dict[str, tuple[Decoder, bool]] = {}
    always = {key: zero(each) for key, each in properties.items() if each.empty == "always"}

    def read(value: Any, reading: Reading) -> Any:
        if type(value) is not dict:
            reading.mismatch(value, field.go)
            return copy.deepcopy(always)
        found: dict[str, Any] = {}
        stack = reading.stack
        for key, item in value.items():
            known = decoders.get(key)
            if known is None:
                if key not in properties:
                    reading.odd(key)
                    continue
                known = decoders[key] = (decoder(properties[key]), properties[key].empty == "omit")
            if item is None:
                continue
            stack.append(key)
            result = known[0](item, reading)
            stack.pop()
            if result is not None and (result or not known[1]):
                found[key] = result
        for key, empty in always.items():
            if key not in found:
                found[key] = copy.deepcopy(empty) if type(empty) is dict else empty
        return found

    return read


def _array(field: Field) -> Decoder:
    items = field.items or Field()
    plain = str if items.type == "string" and not items.format else None
    inner: Decoder | None = None
    empty = zero(items)

    def read(value: Any, reading: Reading) -> Any:
        nonlocal inner
        if type(value) is not list:
            reading.mismatch(value, field.go)
            return None
        if not value:
            return None  # stored lists cannot be empty
        if plain is not None and all(type(each) is plain for each in value):
            return value[:]
        if inner is None:
            inner = decoder(items)
        found = []
        for index, each in enumerate(value):
            reading.stack.append(index)
            found.append(copy.deepcopy(empty) if each is None else inner(each, reading))
            reading.stack.pop()
        return found

    return read


def _map(field: Field) -> Decoder:
    values = field.values or Field()
    plain = str if values.type == "string" and not values.format else None
    inner = decoder(values)
    empty = zero(values)

    def read(value: Any, reading: Reading) -> Any:
        if type(value) is not dict:
            reading.mismatch(value, field.go)
            return None
        if plain is not None and all(type(each) is plain for each in value.values()):
            return value.copy()
        found = {}
        for key, each in value.items():
            reading.stack.append(Step(key))
            found[key] = copy.deepcopy(empty) if each is None else inner(each, reading)
            reading.stack.pop()
        return found

    return read


def _of_type(field: Field, wanted: type) -> Decoder:
    empty = zero(field)

    def read(value: Any, reading: Reading) -> Any:
        if type(value) is wanted:
            return value
        reading.mismatch(value, field.go)
        return empty

    return read


def _integer(field: Field) -> Decoder:
    low, high = _INT.get(field.format, _INT["int64"])

    def read(value: Any, reading: Reading) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        if type(value) in (int, float):
            reading.mismatch(Number(value), field.go)
        else:
            reading.mismatch(value, field.go)
        return 0

    return read


def _text(field: Field, canonical: Callable[[str], str | None]) -> Decoder:
    def read(value: Any, reading: Reading) -> Any:
        if type(value) is str:
            return canonical(value)
        raise BadValue(reading.mismatched(value, "string"))

    return read


def _bytes() -> Decoder:
    byte = _integer(Field("integer", "uint8", go="uint8"))

    def read(value: Any, reading: Reading) -> Any:
        if type(value) is list:
            return base64.b64encode(bytes(0 if each is None else byte(each, reading) for each in value)).decode()
        if type(value) is not str:
            reading.mismatch(value, "[]uint8")
            return ""
        try:
            return scalars.data(value)
        except BadValue as error:
            reading.wrong = reading.wrong or str(error)
            return ""

    return read


def _quantity(value: Any, reading: Reading) -> Any:
    if type(value) in (str, int, float):
        return scalars.quantity(value)
    raise BadValue("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")


def _int_or_string(value: Any, reading: Reading) -> Any:
    if type(value) is str:
        return value
    low, high = _INT["int32"]
    if type(value) is int and low <= value <= high:
        return value
    raise BadValue(reading.mismatched(Number(value) if type(value) in (int, float) else value, "int32"))
