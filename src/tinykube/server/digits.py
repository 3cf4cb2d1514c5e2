"""Whole numbers that clients write as text.

They may have any number of digits, and Python refuses to read thousands of them.  Kubernetes knows none beyond 64 bits.
"""

from __future__ import annotations

import re

_WHOLE = re.compile("[+-]?0*([0-9]{1,20})")


def whole(text: str) -> int | None:
    """The number that a text is; None if it is none, or has more than 20 digits."""
    found = _WHOLE.fullmatch(text)
    return int(found[1]) * (-1 if text[0] == "-" else 1) if found else None
