"""Answers that are kept, so that they need not be found again: those to short questions only.

A cache counts its entries and not their size.  Whoever asks with texts of a megabyte would fill the memory with them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

SHORT = 1024


def remembered(
    count: int, longest: int = SHORT, long: int = 0, *, typed: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep the latest `count` answers to questions of up to `longest` letters, and `long` answers to longer ones."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        short_ones = lru_cache(maxsize=count, typed=typed)(function)
        long_ones = lru_cache(maxsize=long, typed=typed)(function)

        @wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> R:
            is_short = _length((*args, *kwargs.values())) <= longest
            return (short_ones if is_short else long_ones)(*args, **kwargs)  # type: ignore[arg-type]

        return answer

    return decorated


def _length(values: tuple[object, ...]) -> int:
    """How many letters there are in all."""
    count = 0
    for each in values:
        if isinstance(each, str):
            count += len(each)
        elif isinstance(each, tuple):
            count += _length(each)
    return count
