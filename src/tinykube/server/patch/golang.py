"""How Go prints JSON values: the API server's messages quote them so."""

from __future__ import annotations

import json
from typing import Any

_TYPES = {dict: "map[string]interface {}", list: "[]interface {}", str: "string", bool: "bool", int: "int64"}


def plain(value: Any) -> str:
    """`%v`: no quotes, no commas, keys in order."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return "map[" + " ".join(f"{key}:{plain(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(plain(each) for each in value) + "]"
        case float():
            return f"{value:g}" if value != int(value) or abs(value) >= 1e21 else str(int(value))
        case _:
            return str(value)


def quoted(text: str) -> str:
    """`%q`."""
    return json.dumps(text, ensure_ascii=False)


def literal(value: Any) -> str:
    """`%#v`: as it would stand in a program."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return quoted(value)
        case dict():
            return type_name(value) + "{" + ", ".join(f"{quoted(k)}:{literal(value[k])}" for k in sorted(value)) + "}"
        case list():
            return type_name(value) + "{" + ", ".join(literal(each) for each in value) + "}"
        case _:
            return plain(value)


def type_name(value: Any) -> str:
    """`%T`."""
    return "<nil>" if value is None else _TYPES.get(type(value), "float64")
