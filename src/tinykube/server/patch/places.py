"""Where items stand in a list, found without reading the whole list again for each of them.

Clients may put anything into a patch, so an item can go by a list or an object, which Python does not hash.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from heapq import heappop, heappush
from typing import Any


def identity(value: Any) -> Hashable:
    """Something to hash in the place of a JSON value: two are equal if and only if the values are."""
    if isinstance(value, int):
        # Python hashes a number to its remainder, so a client could send many with one hash.  Texts have a salt.
        return b"%x" % value
    if isinstance(value, float):
        return b"%x" % int(value) if value.is_integer() else repr(value).encode()
    if isinstance(value, list):
        return tuple(identity(each) for each in value)
    if isinstance(value, dict):
        return frozenset((key, identity(each)) for key, each in value.items())
    return value if isinstance(value, str) else None


def first(names: Iterable[Hashable]) -> dict[Hashable, int]:
    """The first place of each name."""
    found: dict[Hashable, int] = {}
    for place, name in enumerate(names):
        found.setdefault(name, place)
    return found


class Places:
    """The names in a list that changes; the first place of a name is found without a search."""

    def __init__(self, names: Iterable[Hashable]) -> None:
        self.names = list(names)
        self._found: dict[Hashable, list[int]] = {}  # heaps; some places in them are out of date
        for place, name in enumerate(self.names):
            self._found.setdefault(name, []).append(place)

    def __len__(self) -> int:
        return len(self.names)

    def first(self, name: Hashable, after: int = -1) -> int | None:
        """The first place of a name after another place; those up to there are forgotten."""
        heap = self._found.get(name, [])
        while heap:
            place = heap[0]
            if after < place < len(self.names) and self.names[place] == name:
                return place
            heappop(heap)
        return None

    def put(self, place: int, name: Hashable) -> None:
        """Another name stands there now, or the next one at the end."""
        if place == len(self.names):
            self.names.append(name)
        elif self.names[place] == name:
            return
        else:
            self.names[place] = name
        heappush(self._found.setdefault(name, []), place)

    def drop(self) -> Hashable:
        """Take the last name off."""
        return self.names.pop()
