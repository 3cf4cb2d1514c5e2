"""Merge patch (RFC 7396): what is null goes away, objects merge, all else is replaced."""

from __future__ import annotations

from typing import Any

from tinykube.status import ApiError

Json = dict[str, Any]

_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def apply(document: Json, patch: Any) -> Json:
    """The document after the patch, which is what the body of the request says."""
    if patch is None:
        raise ApiError(400, "BadRequest", "Invalid JSON Patch")
    if not isinstance(patch, dict):
        message = f"json: cannot unmarshal {_KINDS[type(patch)]} into Go value of type map[string]interface {{}}"
        raise ApiError(400, "BadRequest", f"error decoding patch: {message}")
    return _merged(document, patch)


def _merged(document: Json, patch: Json) -> Json:
    result = dict(document)
    for key, value in patch.items():
        present = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(present, dict) and isinstance(value, dict):
            result[key] = _merged(present, value)
        elif isinstance(present, dict):
            result[key] = value
        else:
            result[key] = _pruned(value)
    return result


def _pruned(value: Any) -> Any:
    """A value that comes anew, without the fields that are null.  Items of lists that are null stay."""
    if isinstance(value, dict):
        return {key: _pruned(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return value
