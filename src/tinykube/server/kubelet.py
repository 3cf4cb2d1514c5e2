"""What the API server asks of the kubelet: logs, programs to run in containers, and what containers use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tinykube.status import ApiError


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The query of `pods/NAME/log`.  `since` is in seconds since the epoch."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: float | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None


class Session(Protocol):
    """A program that runs inside a container, with its input and output."""

    async def write(self, data: bytes) -> None:
        """Give it input."""

    async def end_input(self) -> None:
        """No more input comes."""

    async def resize(self, columns: int, rows: int) -> None:
        """Its terminal has another size now."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """What it prints: 1 for standard output, 2 for standard error; a terminal has only 1."""

    async def wait(self) -> int:
        """Its exit code."""

    async def close(self) -> None:
        """Nobody watches any more: end it."""


class Unstarted:
    """The session of a program that could not start; its end says why."""

    def __init__(self, reason: ApiError) -> None:
        self._reason = reason

    async def write(self, data: bytes) -> None:
        pass

    async def end_input(self) -> None:
        pass

    async def resize(self, columns: int, rows: int) -> None:
        pass

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        return
        yield  # of nothing

    async def wait(self) -> int:
        raise self._reason

    async def close(self) -> None:
        pass


class Kubelet(Protocol):
    """Runs the containers of all local nodes.  Raises ApiError if it cannot do what it is asked."""

    async def logs(self, pod: dict[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """What a container has printed."""

    async def execute(
        self, pod: dict[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Session:
        """Start a program in a running container."""

    async def summary(self, node: str) -> dict[str, Any]:
        """What the pods of a node use, as kubelet's `stats/summary` tells it."""
