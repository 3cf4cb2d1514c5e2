"""The OpenAPI v2 document, as JSON and as protobuf.

kubectl asks for it when the newer documents do not have a kind, and takes nothing but protobuf then.  The numbers are
those of the `openapi.v2` messages.  Only what an API server's document has is here: definitions, and what parameters a
path takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tinykube.server.store import encode

Json = dict[str, Any]

MEDIA = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
ANSWERED = MEDIA.replace("@", ".")
"""What a server calls it: a media type that has an `@` in it is none, and clients do not read it."""

_V3, _V2 = "#/components/schemas/", "#/definitions/"
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
# Plain fields of a schema: a text, a text that may be any value, or a number.
_TEXTS = {"$ref": 1, "format": 2, "description": 4, "pattern": 13}
_COUNTS = {"maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15}


def document(info: Json, paths: Json, definitions: Json) -> Json:
    """The document, of parts that are written as in OpenAPI v3."""
    return {
        "swagger": "2.0",
        "info": info,
        "paths": {
            path: {method: _operation(operation) for method, operation in item.items()} for path, item in paths.items()
        },
        "definitions": {name: _plain(schema) for name, schema in definitions.items()},
    }


def protobuf(document: Json) -> bytes:
    """The same for those who want it so."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = _named(2, document["paths"], _path)
    return b"".join((
        _text(1, document["swagger"]), _part(2, info), _part(8, paths),
        _part(9, _named(1, document["definitions"], _schema)),
    ))  # fmt: skip


def _operation(operation: Json) -> Json:
    """Parameters have their type beside their name, and answers no content."""
    kept = {key: value for key, value in operation.items() if key.startswith("x-")}
    parameters = [
        {"name": each["name"], "in": each["in"], **each["schema"]} for each in operation["parameters"]
    ]  # fmt: skip
    return {"parameters": parameters, "responses": {"200": {"description": "OK"}}, **kept}


def _plain(node: Any) -> Any:
    """A schema in the words of v2, which has neither `oneOf` nor anything beside a `$ref`."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "allOf" in node or "$ref" in node:
        target = (node["allOf"][0] if "allOf" in node else node)["$ref"]
        return {"$ref": target.replace(_V3, _V2), **{key: node[key] for key in node if key.startswith("x-")}}
    if "oneOf" in node:
        return {"type": "string", **{key: node[key] for key in node if key != "oneOf"}}
    return {
        key: {name: _plain(each) for name, each in value.items()} if key == "properties" else _plain(value)
        for key, value in node.items()
    }


def _path(item: Json) -> bytes:
    return b"".join(_part(_METHODS[method], _call(operation)) for method, operation in item.items())


def _call(operation: Json) -> bytes:
    parameters = b"".join(
        # item, parameter, not in the body, in the query
        _part(8, _part(1, _part(2, _part(3, _query(each)))))
        for each in operation["parameters"]
    )
    answers = _part(9, _named(1, operation["responses"], lambda each: _part(1, _text(1, each["description"]))))
    return parameters + answers + _extensions(13, operation)


def _query(parameter: Json) -> bytes:
    fields = ((2, parameter["in"]), (4, parameter["name"]), (6, parameter["type"]))
    return b"".join(_text(number, text) for number, text in fields) + _number(20, 1)


def _schema(schema: Json) -> bytes:
    made = [_text(number, schema[key]) for key, number in _TEXTS.items() if key in schema]
    made += [_number(number, schema[key]) for key, number in _COUNTS.items() if key in schema]
    if "default" in schema:
        made.append(_part(5, _any(schema["default"])))
    made += [_text(19, each) for each in schema.get("required", ())]
    made += [_part(20, _any(each)) for each in schema.get("enum", ())]
    values = schema.get("additionalProperties")
    if values is not None:
        made.append(_part(21, _number(2, values) if isinstance(values, bool) else _part(1, _schema(values))))
    if "type" in schema:
        made.append(_part(22, _text(1, schema["type"])))
    if "items" in schema:
        made.append(_part(23, _part(1, _schema(schema["items"]))))
    if "properties" in schema:
        made.append(_part(25, _named(1, schema["properties"], _schema)))
    return b"".join((*made, _extensions(31, schema)))


def _extensions(number: int, node: Json) -> bytes:
    return _named(number, {key: value for key, value in node.items() if key.startswith("x-")}, _any)


def _any(value: Any) -> bytes:
    """A value of any type, as YAML; JSON is YAML too."""
    return _text(2, encode(value).decode())


def _named(number: int, parts: Mapping[str, Any], made: Callable[[Any], bytes]) -> bytes:
    """One message for each name, with what the name stands for."""
    return b"".join(_part(number, _text(1, name) + _part(2, made(value))) for name, value in parts.items())


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode())


def _part(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(int(value))


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))
