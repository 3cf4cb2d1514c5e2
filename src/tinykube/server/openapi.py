"""What clients may know about fields and parameters, as OpenAPI documents.

kubectl looks here for the fields that it explains, for how lists merge when it applies, and for whether the server
checks fields by itself (a PATCH that knows `fieldValidation`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from tinykube.server import crds, schema, swagger
from tinykube.server.kinds import Kind
from tinykube.server.patching import understood
from tinykube.server.store import encode

Json = dict[str, Any]
Kinds = tuple[Kind, ...]

_V3 = "#/components/schemas/"
_INFO = {"title": "Kubernetes", "version": "v1.36.3"}
_WRITING = ("dryRun", "fieldManager", "fieldValidation")
_LISTING = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_DELETING = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_INTEGERS = ("limit", "timeoutSeconds", "gracePeriodSeconds")
_FLAGS = ("allowWatchBookmarks", "sendInitialEvents", "watch", "orphanDependents", "force")


@cache
def index(kinds: Kinds) -> bytes:
    """Where the documents are, one for each group and version."""
    paths = {}
    for place in dict.fromkeys(_place(kind) for kind in kinds):
        digest = hashlib.sha256(document(kinds, place) or b"").hexdigest().upper()
        paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
    return encode({"paths": paths})


@cache
def document(kinds: Kinds, place: str) -> bytes | None:
    """The document of a group and version, such as `apis/coordination.k8s.io/v1`; None if there is none."""
    there = tuple(kind for kind in kinds if _place(kind) == place)
    if not there:
        return None
    paths: Json = {}
    for kind in there:
        paths |= _paths(kind)
    return encode({
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": _definitions(there)},
    })  # fmt: skip


@cache
def old_document(kinds: Kinds, protobuf: bool = False) -> bytes:
    """All of it as OpenAPI v2."""
    paths = {path: item for kind in kinds for path, item in _paths(kind).items()}
    made = swagger.document(_INFO, paths, _definitions(kinds))
    return swagger.protobuf(made) if protobuf else encode(made)


def _place(kind: Kind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _definitions(kinds: Kinds) -> Json:
    """The kinds, and all that they are made of."""
    everything = schema.definitions()
    found: Json = {}
    waiting = []
    for kind in kinds:
        name = schema.name(kind)
        gvk = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
        definition = crds.schema(kind) if kind.custom else everything[name]
        found[name] = {**definition, "x-kubernetes-group-version-kind": gvk}
        waiting.append(found[name])
    while waiting:
        for reference in _references(waiting.pop()):
            if reference not in found and reference in everything:
                found[reference] = everything[reference]
                waiting.append(found[reference])
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value.removeprefix(_V3)
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def _paths(kind: Kind) -> Json:
    collection = f"/{_place(kind)}/namespaces/{{namespace}}/{kind.plural}"
    if not kind.namespaced:
        collection = f"/{_place(kind)}/{kind.plural}"
    media = ("application/json", "application/yaml")
    patch = _operation(kind, "patch", (*_WRITING, "force"), body=understood(kind))
    paths: Json = {
        collection: {
            "get": _operation(kind, "list", _LISTING),
            "post": _operation(kind, "post", _WRITING, body=media),
            "delete": _operation(kind, "deletecollection", (*_LISTING, *_DELETING)),
        },
        f"{collection}/{{name}}": {
            "get": _operation(kind, "get", ("resourceVersion",)),
            "put": _operation(kind, "put", _WRITING, body=media),
            "patch": patch,
            "delete": _operation(kind, "delete", _DELETING),
        },
    }
    if kind.status:
        item = dict(paths[f"{collection}/{{name}}"])
        del item["delete"]
        paths[f"{collection}/{{name}}/status"] = item
    if kind.namespaced:
        paths[f"/{_place(kind)}/{kind.plural}"] = {"get": _operation(kind, "list", _LISTING)}
    return paths


def _operation(kind: Kind, action: str, parameters: tuple[str, ...], body: tuple[str, ...] = ()) -> Json:
    own = {"$ref": _V3 + schema.name(kind)}
    made: Json = {
        "parameters": [_parameter(each) for each in dict.fromkeys(parameters)],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": own}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
    }
    if body:
        what = {} if action == "patch" else own
        made["requestBody"] = {"content": {each: {"schema": what} for each in body}, "required": True}
    return made


def _parameter(name: str) -> Json:
    type = "integer" if name in _INTEGERS else "boolean" if name in _FLAGS else "string"
    return {"name": name, "in": "query", "schema": {"type": type, "uniqueItems": True}}
