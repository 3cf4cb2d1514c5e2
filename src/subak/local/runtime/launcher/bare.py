"""What a launcher needs of modules that take long to import.

`socket`, `signal` and `contextlib` bring enumerations and collections along.  Without them a launcher starts in
two thirds of the time, and every container waits for its launcher.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
else:
    import _signal as signal
    import _socket as socket

__all__ = ["signal", "socket", "suppress"]


class suppress:  # noqa: N801 - as in contextlib
    """Go on behind the block if one of these errors ends it."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)
