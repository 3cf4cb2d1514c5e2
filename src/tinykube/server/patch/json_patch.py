"""JSON patch (RFC 6902): operations on paths, all of them or none.

The API server takes some liberties, and so do we: `replace` of a field that is not there adds it, `copy` of one that is
not there adds null, and a negative index counts from the end.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from tinykube.depth import too_deep
from tinykube.server import digits, errors
from tinykube.server.patch import refusals
from tinykube.server.store import MOST_LEVELS
from tinykube.status import ApiError

Json = dict[str, Any]

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 << 20
"""Bytes of all copies together: each may double the document."""

_MISSING = object()
_MEMBERS = ("op", "path", "from")
_KINDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


class _DoesNotApply(Exception):
    """An operation names something that is not there; the API server's answer does not say which."""


def apply(document: Json, operations: Any) -> Any:
    """The document after all operations, usually an object.  `operations` is what the body of the request says."""
    _check(operations)
    root: list[Any] = [deepcopy(document)]
    copied = 0
    try:
        for operation in operations or ():
            copied += _operate(root, operation)
            if copied > MOST_COPIED:
                raise _DoesNotApply
        deep = bool(too_deep(msgspec.json.encode(root[0]), MOST_LEVELS))
    except _DoesNotApply:
        raise refusals.unprocessable() from None
    except RecursionError:  # thousands of moves make thousands of levels
        deep = True
    if deep:
        raise errors.too_deep()
    return root[0]


def warnings(operations: Any) -> list[str]:
    """Members of the operations that mean nothing, in the API server's words."""
    known = (*_MEMBERS, "value")
    return [
        f'json patch unknown field "[{index}].{member}"'
        for index, operation in enumerate(operations or ())
        for member in operation or ()
        if member not in known
    ]


def _check(operations: Any) -> None:
    if operations is None:
        return
    if not isinstance(operations, list):
        raise _undecodable(operations, "Go value of type []handlers.jsonPatchOp")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise _undecodable(operation, "Go value of type handlers.jsonPatchOp")
        for member in _MEMBERS:
            text = (operation or {}).get(member)
            if text is not None and not isinstance(text, str):
                raise _undecodable(text, f"Go struct field jsonPatchOp.{member} of type string")
    if len(operations) > MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def _undecodable(value: Any, target: str) -> ApiError:
    message = f"error decoding patch: json: cannot unmarshal {_KINDS[type(value)]} into {target}"
    return ApiError(400, "BadRequest", message)


def _operate(root: list[Any], operation: Json | None) -> int:
    """Do one operation; gives the bytes that it has copied.

    The document is the only item of `root`, so that it can be replaced as a whole.
    """
    members = operation or {}
    path = members.get("path")
    if path is None:
        raise _DoesNotApply
    match members.get("op"):
        case "add":
            _add(*_find(root, path), deepcopy(members.get("value")))
        case "remove":
            _remove(*_find(root, path))
        case "replace":
            _replace(root, path, members)
        case "move":
            container, key = _find(root, members.get("from"))
            value = _get(container, key)
            _remove(container, key)
            _add(*_find(root, path), value)
        case "copy":
            value = _get(*_find(root, members.get("from")))
            written = msgspec.json.encode(None if value is _MISSING else value)
            _add(*_find(root, path), msgspec.json.decode(written))
            return len(written)
        case "test":
            found = root[0] if path == "" else _get(*_find(root, path))
            if not _same(None if found is _MISSING else found, members.get("value")):
                raise _DoesNotApply
        case _:
            raise _DoesNotApply
    return 0


def _find(root: list[Any], path: str | None) -> tuple[Any, str]:
    """What holds the path's last step, and that step."""
    if path is None or "/" not in path:
        raise _DoesNotApply
    steps = [each.replace("~1", "/").replace("~0", "~") for each in path.split("/")[1:]]
    found = root[0]
    for step in steps[:-1]:
        found = _get(found, step)
    if not isinstance(found, dict | list):
        raise _DoesNotApply
    return found, steps[-1]


def _index(step: str, length: int) -> int:
    index = digits.whole(step)
    if index is None:
        raise _DoesNotApply
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise _DoesNotApply
    return index


def _get(container: Any, key: str) -> Any:
    if isinstance(container, list):
        return container[_index(key, len(container))]
    if not isinstance(container, dict):
        raise _DoesNotApply
    return container.get(key, _MISSING)


def _add(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        container.insert(_index(key, len(container) + 1), value)


def _remove(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(key, len(container))]
    elif key in container:
        del container[key]
    else:
        raise _DoesNotApply


def _replace(root: list[Any], path: str, members: Json) -> None:
    value = deepcopy(members.get("value"))
    if path == "":
        if not isinstance(value, dict | list):
            raise _DoesNotApply
        root[0] = value
        return
    container, key = _find(root, path)
    if isinstance(container, list):
        container[_index(key, len(container))] = value
    else:
        container[key] = value


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON text: `true` is not `1`, and `1` is not `1.0`."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(_same(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)
