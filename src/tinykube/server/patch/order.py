"""The order of merged lists in a strategic merge patch.

Items that the patch names come as the patch has them, or as `$setElementOrder` says; the others stay where they are
among them as well as can be.  An item goes by its merge key, or by itself if it is a plain value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from math import inf
from typing import Any

from tinykube.server.patch import golang, places, refusals
from tinykube.server.patch.places import identity

Items = list[Any]
Name = Callable[[Any], Any]

DIRECTIVE = "$patch"
ORDER = "$setElementOrder"


def itself(item: Any) -> Any:
    """What a plain value goes by."""
    return item


def by(key: str) -> Name:
    """What an object goes by."""

    def name(item: Any) -> Any:
        if not isinstance(item, dict):
            raise refusals.bad_type("map[string]interface {}", item)
        if key not in item:
            raise refusals.no_key(item, key)
        return item[key]

    return name


def is_directed(value: Any) -> bool:
    """Whether a value is an object with a directive for itself."""
    return isinstance(value, dict) and DIRECTIVE in value


def check(patch: Items, order: Items, name: Name) -> None:
    """Refuse an order that does not have all items of the patch, or not in the order of the patch."""
    if not order or not patch:
        return
    rest = deque(each for each in patch if not _deletes(each))
    for each in order:
        while rest and is_directed(rest[0]):
            rest.popleft()
        if rest and name(rest[0]) == name(each):
            rest.popleft()
    if rest:
        given, wanted = golang.plain(patch), golang.plain(order)
        raise refusals.failed(f"The order in patch list:\n{given}\n doesn't match {ORDER} list:\n{wanted}\n")


def ordered(merged: Items, order: Items, live: Items, name: Name) -> Items:
    """The items that `order` has in its order, and the others among them where `live` had them."""
    wanted = places.first(identity(name(each)) for each in order)
    before = places.first(identity(name(each)) for each in live)
    named = [(identity(name(each)), each) for each in merged]
    left = deque(_sorted([pair for pair in named if pair[0] not in wanted], before))
    right = deque(_sorted([pair for pair in named if pair[0] in wanted], wanted))
    result: Items = []
    while left and right:
        mine, theirs = before.get(left[0][0]), before.get(right[0][0])
        first = mine is not None and theirs is not None and mine < theirs
        result.append((left if first else right).popleft()[1])
    return result + [item for _, item in (*left, *right)]


def remembered(live: Items, patch: Items, key: str) -> Items:
    """The live list as the API server remembers it after a merge: new items stand where deleted ones left room.

    The server merges in place, and orders by what it finds there afterwards.  `kubectl apply` relies on the outcome.
    """
    memory, length = _closed(live, [each[key] for each in patch if _deletes(each)], key)
    if any(is_directed(each) and each[DIRECTIVE] == "replace" for each in patch):
        return memory
    known = {identity(each.get(key)) for each in memory[:length]}
    new = [each for each in patch if not is_directed(each) and identity(each[key]) not in known]
    room = new[: len(memory) - length]
    memory[length : length + len(room)] = room
    return memory


def _deletes(item: Any) -> bool:
    return is_directed(item) and item[DIRECTIVE] == "delete"


def _closed(live: Items, gone: Items, key: str) -> tuple[Items, int]:
    """The list after its gaps were closed one by one, and how many items are left.

    Go moves what is behind a gap forward and leaves the end of the memory as it is: the item that was the last.
    """
    found: dict[Hashable, list[int]] = {}
    for place, each in enumerate(live):
        found.setdefault(identity(each.get(key)), []).append(place)
    kept, behind, last = [True] * len(live), [], len(live) - 1
    for name in map(identity, gone):
        for place in reversed(found.pop(name, [])):
            while not kept[last]:
                last -= 1
            behind.append(live[last])
            kept[place] = False
    left = [each for each, stays in zip(live, kept, strict=True) if stays]
    return left + behind[::-1], len(left)


def _sorted(named: list[tuple[Hashable, Any]], order: dict[Hashable, int]) -> list[tuple[Hashable, Any]]:
    """Sorted as the API server does it, by insertion: what has no place goes before all that is there by then.

    Whatever comes later goes before that too if it belongs before all that had a place by then.
    """
    least: float = inf
    ranks: list[tuple[float, int, int]] = []
    for turn, (name, _) in enumerate(named):
        place = order.get(name)
        if place is None:
            ranks.append((least, 0, -turn))
        else:
            least = min(least, place)
            ranks.append((place, 1, turn))
    return [named[turn] for turn in sorted(range(len(named)), key=ranks.__getitem__)]
