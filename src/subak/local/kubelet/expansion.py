"""`$(NAME)` in values, commands and arguments.

`$(NAME)` becomes the variable's value, or stays as it is if there is none; `$$` becomes `$`, so the program gets
`$(NAME)` for `$$(NAME)`.  Everything else stays, since `$NAME` and `${NAME}` are for shells.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:\((?P<name>[^)]*)\)|(?P<other>.))", re.DOTALL)


class MissingValues(ValueError):
    """Variables that are not set, or empty, where that is not allowed."""


def expand(text: str, *variables: Mapping[str, str]) -> str:
    """`text` with references replaced; the first mapping that knows a name gives its value."""
    if "$" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return "$" if found["other"] == "$" else found[0]
        for known in variables:
            if name in known:
                return known[name]
        return found[0]

    return _REFERENCE.sub(value, text)


def expand_path(text: str, variables: Mapping[str, str]) -> str:
    """The same for a `subPathExpr`, where every variable must have a value."""
    names = {found["name"] for found in _REFERENCE.finditer(text) if found["name"] is not None}
    missing = sorted(name for name in names if not variables.get(name))
    if missing:
        raise MissingValues(f"missing value for {', '.join(missing)}")
    return expand(text, variables)
