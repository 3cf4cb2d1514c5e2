"""What differs between two specs, for people to read."""

from __future__ import annotations

import difflib
import json
from typing import Any


def of_specs(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The lines that differ, with three lines around them."""
    return "".join(list(difflib.unified_diff(_lines(before), _lines(after)))[2:])  # without the names of files


def _lines(spec: dict[str, Any]) -> list[str]:
    return [f"{line}\n" for line in json.dumps(spec, indent=1, sort_keys=True).splitlines()]
