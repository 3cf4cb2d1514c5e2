"""The latest of what is to be told about each thing, but not more often than people can read or a server should write.

What comes too soon after the last word waits, and gives way to what comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pace(Generic[T]):
    """Words about things, by key.  What was told last is not told again."""

    def __init__(self) -> None:
        self._told: dict[str, T] = {}
        self._waiting: dict[str, T] = {}
        self._free_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def say(self, key: str, word: T, urgent: bool = False) -> None:
        """This is to be told, as soon as it may be."""
        if self._told.get(key) == word:
            self._waiting.pop(key, None)
            return
        self._waiting[key] = word
        if urgent:
            self._free_at.pop(key, None)

    def last(self, key: str) -> T | None:
        """What was told last."""
        return self._told.get(key)

    def free_at(self, key: str) -> float:
        """When something may be told about it."""
        return self._free_at.get(key, 0.0)

    def forget(self, key: str) -> None:
        """There is no such thing any more."""
        for each in (self._told, self._waiting, self._free_at):
            each.pop(key, None)

    def due(self, now: float, pause: Callable[[str], float]) -> list[tuple[str, T]]:
        """What is told now; after that, nothing more about the same thing for `pause` seconds."""
        found = [(key, word) for key, word in self._waiting.items() if self._free_at.get(key, now) <= now]
        for key, word in found:
            del self._waiting[key]
            self._told[key], self._free_at[key] = word, now + pause(key)
        return found

    def next(self) -> float | None:
        """When something is due; None if there is nothing to tell."""
        return min((self._free_at.get(key, 0.0) for key in self._waiting), default=None)
