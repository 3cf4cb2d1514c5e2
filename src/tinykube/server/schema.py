"""What fields the served kinds have: types, defaults, and how lists and maps merge.

The schemas are Kubernetes' own, cut down to the kinds that are served; `python -m tests.e2e.schema` makes
`schema.json` from them.  Custom kinds bring theirs (`crds`).  Its `definitions` are OpenAPI as an API
server publishes it; its `types` say what the Go structs add: what a type is called, and what becomes of an empty value.
A definition is read when it is first needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tinykube.server import crds
from tinykube.server.kinds import Kind

_HERE = Path(__file__).parent
_REFERENCE = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_CONSTRAINTS = ("enum", "minimum", "maximum", "minLength", "maxLength", "pattern")


@dataclass(frozen=True, slots=True)
class Field:
    """The schema of a value.

    `type` is object, array, string, integer, number, boolean, int-or-string, quantity, or any.  An object has either
    `properties` or, as a map, `values`; neither means that anything goes.  `format` is int32, int64, byte, date-time,
    or micro-time (a time with microseconds).  How it merges: `list_type` (atomic, set, map with `keys`) and `atomic`
    (an object or a map that is replaced as a whole) are what server-side apply looks at, `merge_key` and `strategies`
    (merge, replace, retainKeys) what a strategic merge patch looks at.

    What only Go knows: `go` is the type's name in messages (`[]v1.Container`), and `embedded` that of the struct by
    which a struct has the field, if not by itself.  `empty` says what becomes of an empty
    value: omit (it is dropped), keep (it is written if it was given), or always (it is written even if it was not
    given).  `extra` are the constraints of a custom kind's field, such as `enum` and `minimum`.
    """

    type: str = "any"
    format: str = ""
    properties: dict[str, Field] | None = None
    items: Field | None = None
    values: Field | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    list_type: str = ""
    keys: tuple[str, ...] = ()
    atomic: bool = False
    merge_key: str = ""
    strategies: tuple[str, ...] = ()
    preserve_unknown: bool = False
    go: str = ""
    embedded: str = ""
    empty: str = "keep"
    extra: dict[str, Any] = field(default_factory=dict)


ANY = Field()


class _File(msgspec.Struct):
    """`schema.json`, whose parts stay text until they are needed."""

    definitions: dict[str, msgspec.Raw]
    types: dict[str, msgspec.Raw]


@cache
def of(kind: Kind) -> Field:
    """The schema of a kind's objects, `apiVersion`, `kind` and `metadata` included."""
    return _field(crds.schema(kind), {}, f"v1.{kind.kind}") if kind.custom else _definition(name(kind))


@cache
def definitions() -> dict[str, Any]:
    """The definitions of all but custom kinds by name, as `components.schemas` of OpenAPI v3 has them."""
    return {name: msgspec.json.decode(text) for name, text in _file().definitions.items()}


def name(kind: Kind) -> str:
    """What a kind's definition is called."""
    if kind.kind in ("DeleteOptions", "Status"):
        return _META + kind.kind
    if kind.custom:
        return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
    return f"io.k8s.api.{kind.group.split('.')[0] or 'core'}.{kind.version}.{kind.kind}"


@cache
def _file() -> _File:
    return msgspec.json.decode((_HERE / "schema.json").read_bytes(), type=_File)


@cache
def _definition(name: str) -> Field:
    """The schema that a definition describes."""
    short = "resource.Quantity" if name == _QUANTITY else f"v1.{name.rsplit('.', 1)[-1]}"
    if name == _QUANTITY:
        return Field("quantity", go=short)
    if name == _META + "MicroTime":
        return Field("string", "micro-time", go=short)
    file = _file()
    types = msgspec.json.decode(file.types.get(name, b"{}"), type=dict[str, str])
    return _field(msgspec.json.decode(file.definitions[name]), types, short)


def _field(node: dict[str, Any], types: dict[str, str], go: str) -> Field:
    """The schema that a node of a definition describes; `types` are those of its properties, `go` is its own."""
    if "allOf" in node or "$ref" in node:
        target = (node["allOf"][0] if "allOf" in node else node)["$ref"].removeprefix(_REFERENCE)
        found = _definition(target)
        atomic = found.atomic or node.get("x-kubernetes-map-type") == "atomic"
        return replace(found, default=node.get("default"), strategies=_strategies(node), atomic=atomic)
    if node.get("x-kubernetes-int-or-string") or node.get("format") == "int-or-string":
        return Field("int-or-string", extra=_constraints(node), go=go)
    values, items, properties = node.get("additionalProperties"), node.get("items"), node.get("properties")
    return Field(
        node.get("type", "any"),
        node.get("format", ""),
        None if properties is None else {key: _property(each, types.get(key)) for key, each in properties.items()},
        None if items is None else _field(items, {}, go.removeprefix("[]")),
        None if not isinstance(values, dict) else _field(values, {}, go.partition("]")[2]),
        tuple(node.get("required", ())),
        node.get("default"),
        node.get("x-kubernetes-list-type", ""),
        tuple(node.get("x-kubernetes-list-map-keys", ())),
        node.get("x-kubernetes-map-type") == "atomic",
        node.get("x-kubernetes-patch-merge-key", ""),
        _strategies(node),
        bool(node.get("x-kubernetes-preserve-unknown-fields")),
        go,
        extra=_constraints(node),
    )


def _property(node: dict[str, Any], declared: str | None) -> Field:
    """The schema of a property that is declared in Go as, for example, `*v1.Probe omitempty`."""
    go, *options = (declared or "").split(" ")
    found = _field(node, {}, go.removeprefix("*"))
    if options and options[-1].startswith("in:"):
        found = replace(found, embedded=options[-1].removeprefix("in:"))
    if declared is None or go.startswith("*") or "omitzero" in options:
        return found  # a pointer, whose value may be empty, or not of a Go struct at all
    # `omitempty` of Go does not concern structs.
    always = "omitempty" not in options or _is_struct(found)
    return replace(found, empty="always" if always else "omit")


def _is_struct(found: Field) -> bool:
    return (
        found.properties is not None
        or found.type in ("quantity", "int-or-string")
        or found.format in ("date-time", "micro-time")
    )


def _strategies(node: dict[str, Any]) -> tuple[str, ...]:
    strategy = node.get("x-kubernetes-patch-strategy", "")
    return tuple(strategy.split(",")) if strategy else ()


def _constraints(node: dict[str, Any]) -> dict[str, Any]:
    return {key: node[key] for key in _CONSTRAINTS if key in node}
