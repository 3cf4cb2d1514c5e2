"""How a request reaches an API server: the contract that the HTTP transport and the embedded server both follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tinykube.user import User


@dataclass(frozen=True, slots=True)
class Request:
    """A request to an API server.  Names of headers are in lower case.

    `user` is who asks, in a request that stays in this process; one that leaves it carries credentials instead.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An answer.  `stream` is set instead of `body` if the answer has no end, as that of a watch."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None


class Unreachable(ConnectionError):
    """No connection could be made: the server has not seen the request, so it may be sent again."""


class Transport(Protocol):
    """Carries requests to one API server."""

    async def send(self, request: Request) -> Response:
        """The answer, whatever its status.  Raises OSError or TimeoutError if there is none.

        A stream yields whole chunks as they come; a reader that stops early calls its `aclose`.
        """

    async def close(self) -> None:
        """Let go of connections."""
