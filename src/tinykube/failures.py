"""What the log says of failures: what failed and where, and nothing that a client sent.

A client's bytes may be its token or the content of a Secret, and errors like to repeat them.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

from aiohttp.http import HttpProcessingError

FRAMES = 6
"""The last steps of the way to an error; more are always the same."""
LONGEST = 200

_CLIENTS_OWN = (HttpProcessingError, ConnectionError, TimeoutError)


def told(error: BaseException) -> str:
    """The kind of an error, and the way to it."""
    way = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return f"{type(error).__name__} at {' < '.join(f'{Path(at.filename).name}:{at.lineno}' for at in reversed(way))}"


def shown(text: str) -> str:
    """A client's words on one line, cut if they are long."""
    return ascii(text if len(text) <= LONGEST else f"{text[:LONGEST]}...")[1:-1]


class Discreet(logging.Logger):
    """For aiohttp, which logs the bytes of each request that it cannot read: here they are the client's own matter."""

    def __init__(self, heir: logging.Logger) -> None:
        super().__init__(heir.name, logging.ERROR)
        self._heir = heir

    def exception(self, msg: object, *args: object, exc_info: Any = None, **_: Any) -> None:
        if isinstance(exc_info, BaseException) and not isinstance(exc_info, _CLIENTS_OWN):
            self._heir.error("%s: %s", shown(str(msg) % args if args else str(msg)), told(exc_info))
