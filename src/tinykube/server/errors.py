"""The refusals that every kind knows, in the API server's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinykube.server.kinds import Kind
from tinykube.status import ApiError, Cause

# How much of what is wrong with an object is told, in letters.
MOST_TOLD = 1 << 20

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def details(kind: Kind, name: str = "", uid: str = "") -> dict[str, Any]:
    """What a `Status` says about the object that it speaks of."""
    found = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {key: value for key, value in found.items() if value}


def not_found(kind: Kind, name: str) -> ApiError:
    """There is no object of that name."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    """The name is taken."""
    return ApiError(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details(kind, name))


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> ApiError:
    """The object is not what the caller believes it to be."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details(kind, name))


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def too_deep() -> ApiError:
    """Patches have put things into each other until the object cannot be read any more."""
    return bad_request("the object has too many levels: exceeded max depth")


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    """Admission does not want it."""
    message = f'{kind.resource} "{name}" is forbidden: {why}' if name else f"{kind.resource} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, details(kind, name))


def internal(message: str) -> ApiError:
    """Something behind the API server went wrong."""
    text = f"Internal error occurred: {message}"
    return ApiError(500, "InternalError", text, {"causes": [{"message": message}]})


def expired(message: str) -> ApiError:
    """What was asked about is longer ago than is remembered."""
    return ApiError(410, "Expired", message)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """Fields of the object are wrong.  A single cause stands alone, several are listed in brackets.

    After `MOST_TOLD` letters only the number of those that are left is told.
    """
    causes = _first(causes)
    parts = list(dict.fromkeys(f"{each.field}: {each.message}" if each.field else each.message for each in causes))
    text = parts[0] if len(parts) == 1 else "[" + ", ".join(parts) + "]"
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    about = {key: value for key, value in (("name", name), ("group", kind.group), ("kind", kind.kind)) if value}
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', about, causes)


def _first(causes: Sequence[Cause]) -> Sequence[Cause]:
    """As many causes as there is room for, but at least one, and how many more there are."""
    told = 0
    for index, each in enumerate(causes):
        told += len(each.field) + len(each.message)
        if told > MOST_TOLD and index:
            return [*causes[:index], Cause("FieldValueInvalid", f"and {len(causes) - index} more")]
    return causes
