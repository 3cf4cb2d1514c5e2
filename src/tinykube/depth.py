"""How many levels a text may have, so that its reader may recurse.

Go's readers stop at 10,000 levels.  Python's own limit is 1,000 calls, of which a level takes several, and what goes
beyond ends in the middle of something.  So texts are counted before they are read.
"""

from __future__ import annotations

import re

LEVELS = 100
"""The most levels; no object of Kubernetes' own has 50."""

_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)')
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def check(content: bytes) -> None:
    """Raise ValueError if JSON has too many levels."""
    bracket = too_deep(content)
    if bracket:
        raise ValueError(f"invalid character '{bracket}' exceeded max depth")


def too_deep(content: bytes, levels: int = LEVELS) -> str:
    """The bracket with which JSON becomes too deep, empty if it does not.  The content need not be proper JSON."""
    if content.count(b"[") + content.count(b"{") <= levels:
        return ""
    depth = 0
    for letter in _STRING.sub(b"", content).translate(None, _OTHERS):
        depth += 1 if letter in b"[{" else -1
        if depth > levels:
            return chr(letter)
    return ""
