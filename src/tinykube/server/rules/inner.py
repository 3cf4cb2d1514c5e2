"""How Kubernetes' own structs print: all fields in their order, by the names that only Go knows.

Some messages quote such a struct, or the difference of two.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from tinykube.server import schema

Json = dict[str, Any]

_PLAIN: dict[str, Any] = {"bool": False, "int32": 0, "int64": 0, "resource.Quantity": "0", "intstr.IntOrString": 0}
_MAPS = ("ResourceList", "map[")
# Fields of the spec that are inside a part of it.
_MOVED = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


def shown(struct: str, value: Json) -> Json:
    """A value as its struct prints."""
    return {name: _field(type, value.get(key)) for name, key, type in schema.structs()[struct]}


def difference(before: Json, after: Json) -> str:
    """The lines in which two specs of pods differ, with three lines around them."""
    changes = difflib.unified_diff(_lines(before), _lines(after))
    return "".join(list(changes)[2:])  # without the names of files


def _lines(spec: Json) -> list[str]:
    moved = {key: spec[key] for key in _MOVED if key in spec}
    spec = {**spec, "securityContext": {**spec.get("securityContext", {}), **moved}}
    text = json.dumps(shown("PodSpec", spec), indent=1, ensure_ascii=False)
    return [f"{line}\n" for line in text.splitlines()]


def _field(type: str, value: Any) -> Any:
    if type.startswith("*"):
        return None if value is None else _field(type[1:], value)
    if type.startswith("[]"):
        return None if value is None else [_field(type[2:], each) for each in value]
    if type.startswith(_MAPS):
        return None if value is None else dict(sorted(value.items()))
    if type in schema.structs():
        return shown(type, value or {})
    return _PLAIN.get(type, "") if value is None else value
