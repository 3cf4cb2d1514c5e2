"""Durations as people and kubectl write them: `90`, `90s`, `5m`, `1h30m`, `500ms`."""

from __future__ import annotations

import re

import click

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)", re.ASCII)
_WHOLE = re.compile(rf"{_NUMBER}|(?:{_NUMBER}(?:ms|s|m|h|d))+", re.ASCII)
_MOST = 100 * 365 * 86_400


def duration(text: str) -> float:
    """The value of an option in seconds; a number without a unit is in seconds.  Raises BadParameter."""
    if not _WHOLE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no duration: write a number with a unit, such as 90s, 5m or 1h30m")
    parts = [(float(part[1]), part[2]) for part in _PART.finditer(text)] or [(float(text), "s")]
    seconds = sum(number * _UNITS[unit] for number, unit in parts)
    if seconds > _MOST:
        raise click.BadParameter(f"{text!r} is longer than a hundred years")
    return seconds
