"""`$(NAME)` in values, commands and arguments.

`$(NAME)` becomes the variable's value, or stays as it is if there is none; `$$` becomes `$`, so the program gets
`$(NAME)` for `$$(NAME)`.  Everything else stays, since `$NAME` and `${NAME}` are for shells.

A pod can say in a few words what would fill the memory: a value that names the one before it ten times, and so on.  So
there is room for as much as the kernel gives to a program, and not for more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST = 128 << 10
"""Bytes of one argument or variable, at most."""
MOST = 6 << 20
"""Bytes of all of them, at most."""

_REFERENCE = re.compile(r"\$(?:\((?P<name>[^)]*)\)|(?P<other>.))", re.DOTALL)


class MissingValues(ValueError):
    """Variables that are not set, or empty, where that is not allowed."""


class TooLong(ValueError):
    """More text than any program can be given."""


class Room:
    """The room for all arguments and variables of a program together."""

    def __init__(self) -> None:
        self._left = MOST

    def take(self, text: str) -> str:
        """The same text, if there is still room for it.  Raises TooLong."""
        self._left -= len(text)
        if self._left < 0:
            raise TooLong(
                f"the variables, or the command, are longer than {MOST >> 20} MiB: no program can be given more"
            )
        return text


def expand(text: str, *variables: Mapping[str, str]) -> str:
    """`text` with references replaced; the first mapping that knows a name gives its value.  Raises TooLong."""
    if "$" not in text:
        return text
    size = 0

    def value(found: re.Match[str]) -> str:
        nonlocal size
        name = found["name"]
        if name is None:
            return "$" if found["other"] == "$" else found[0]
        for known in variables:
            if name in known:
                size += len(known[name])
                if size > LONGEST:
                    raise TooLong(
                        f"{text[:40]!r} becomes longer than {LONGEST >> 10} KiB: no program can be given more"
                    )
                return known[name]
        return found[0]

    end = _end(text)
    return _REFERENCE.sub(value, text[:end]) + text[end:].replace("$$", "$")


def expand_path(text: str, variables: Mapping[str, str]) -> str:
    """The same for a `subPathExpr`, where every variable must have a value."""
    names = {found["name"] for found in _REFERENCE.finditer(text, 0, _end(text)) if found["name"] is not None}
    missing = sorted(name for name in names if not variables.get(name))
    if missing:
        raise MissingValues(f"missing value for {', '.join(missing)}")
    return expand(text, variables)


def _end(text: str) -> int:
    """Where the last reference can end; to look for an end behind it, again for each `$(`, might take hours."""
    return text.rfind(")") + 1
