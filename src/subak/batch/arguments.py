"""Arguments of plugins and actions, read by Volcano's rules.

    int     only a YAML integer counts
    float   a YAML number
    bool    a YAML bool, or a text that reads as one ("true", "1", "t", ...)

A value of another type is ignored, and the default stays; `doubts` says so.  So is a number beyond all reason, with
which sums of scores would overflow.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

MOST = 1_000_000
"""The largest number, above and below 0."""

TRUE, FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one plugin or action; `place` names it in messages."""

    values: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    doubts: list[str] = field(default_factory=list, compare=False)

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        value = self.values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST:
            return value
        return self._doubt(name, value, f"a whole number up to {MOST:,}", default)

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self.values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST:
            return float(value)
        return self._doubt(name, value, f"a number up to {MOST:,}", default)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in TRUE | FALSE:
            return value in TRUE
        return self._doubt(name, value, "true or false", default)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else self._doubt(name, value, "a text", default)

    def _doubt(self, name: str, value: Any, wanted: str, default: T) -> T:
        if value is not None:
            shown = reprlib.repr(value)
            self.doubts.append(f"{self.place}: argument {name} is {shown}, not {wanted}; {default!r} is used")
        return default
