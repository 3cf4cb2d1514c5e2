"""What patches are refused with."""

from __future__ import annotations

from typing import Any

from tinykube.server.patch import golang
from tinykube.status import ApiError


def bad_request(message: str) -> ApiError:
    """The patch cannot be understood."""
    return ApiError(400, "BadRequest", message)


def failed(message: str) -> ApiError:
    """The patch does not fit.  The API server takes that for its own fault and gives no reason."""
    return ApiError(500, "", message)


def unprocessable() -> ApiError:
    """The patch cannot be followed.  The API server does not say why."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def no_key(item: dict[str, Any], key: str) -> ApiError:
    """An item of a list does not say which one it is."""
    return failed(f"map: {golang.plain(item)} does not contain declared merge key: {key}")


def bad_type(expected: str, value: Any) -> ApiError:
    """A value is of another type than it must be."""
    return failed(f"expected a {expected}, but received a {golang.type_name(value)}")
