"""Refusals of an API server: a `Status` object as an exception.

The embedded API server raises what a client of any API server catches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Cause:
    """One of several things that are wrong with an object."""

    reason: str
    message: str
    field: str = ""


class ApiError(Exception):
    """A request that was refused, with all that its `Status` says; `details` may be empty or not there at all."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None, causes: Sequence[Cause] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self._has_details = details is not None
        if causes:
            self.details["causes"] = [
                {"reason": each.reason, "message": each.message, **({"field": each.field} if each.field else {})}
                for each in causes
            ]

    @classmethod
    def from_status(cls, status: dict[str, Any], code: int = 500) -> Self:
        """The error that a `Status` object describes; `code` is that of the answer that carried it."""
        return cls(
            int(status.get("code") or code),
            str(status.get("reason", "")),
            str(status.get("message", "")),
            status.get("details"),
        )

    def status(self) -> dict[str, Any]:
        """The `Status` object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details or self._has_details:
            status["details"] = self.details
        return status | {"code": self.code}


def is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed later: no answer came, or the server is busy (429) or in trouble."""
    if isinstance(error, ApiError):
        return error.code == 429 or error.code >= 500
    return isinstance(error, OSError | TimeoutError)
