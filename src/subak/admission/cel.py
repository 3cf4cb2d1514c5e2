"""Words of CEL, the language of conditions that an API server evaluates itself."""

from __future__ import annotations

import json
from collections.abc import Iterable


def text(value: str) -> str:
    """A string; the escapes of JSON are those of CEL."""
    return json.dumps(value, ensure_ascii=False)


def texts(values: Iterable[str]) -> str:
    """A list of strings, in order."""
    return f"[{', '.join(map(text, sorted(values)))}]"
