"""The order of merged lists in a strategic merge patch.

Items that the patch names come as the patch has them, or as `$setElementOrder` says; the others stay where they are
among them as well as can be.  An item goes by its merge key, or by itself if it is a plain value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server.patch import golang, refusals

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
    rest = [each for each in patch if not (is_directed(each) and each[DIRECTIVE] == "delete")]
    for each in order:
        while rest and is_directed(rest[0]):
            del rest[0]
        if rest and name(rest[0]) == name(each):
            del rest[0]
    if rest:
        given, wanted = golang.plain(patch), golang.plain(order)
        raise refusals.failed(f"The order in patch list:\n{given}\n doesn't match {ORDER} list:\n{wanted}\n")


def ordered(merged: Items, order: Items, live: Items, name: Name) -> Items:
    """The items that `order` has in its order, and the others among them where `live` had them."""
    places = [name(each) for each in order]
    before = [name(each) for each in live]
    left = _sorted([each for each in merged if name(each) not in places], before, name)
    right = _sorted([each for each in merged if name(each) in places], places, name)
    result: Items = []
    while left and right:
        mine, theirs = name(left[0]), name(right[0])
        first = mine in before and theirs in before and before.index(mine) < before.index(theirs)
        result.append((left if first else right).pop(0))
    return result + left + right


def remembered(live: Items, patch: Items, key: str) -> Items:
    """The live list as the API server remembers it after a merge: new items stand where deleted ones left room.

    The server merges in place, and orders by what it finds there afterwards.  `kubectl apply` relies on the outcome.
    """
    memory = list(live)
    length = len(memory)
    for gone in (each[key] for each in patch if is_directed(each) and each[DIRECTIVE] == "delete"):
        for index in reversed([i for i, each in enumerate(memory[:length]) if each.get(key) == gone]):
            memory[index : length - 1] = memory[index + 1 : length]
            length -= 1
    if any(is_directed(each) and each[DIRECTIVE] == "replace" for each in patch):
        return memory
    known = [each.get(key) for each in memory[:length]]
    new = [each for each in patch if not is_directed(each) and each[key] not in known]
    room = new[: len(memory) - length]
    memory[length : length + len(room)] = room
    return memory


def _sorted(items: Items, order: Items, name: Name) -> Items:
    """Sorted by insertion, as the API server does it: what has no place goes before all that it is compared to."""
    result: Items = []
    for item in items:
        place = len(result)
        while place and _is_before(name(item), name(result[place - 1]), order):
            place -= 1
        result.insert(place, item)
    return result


def _is_before(left: Any, right: Any, order: Items) -> bool:
    return left not in order or right not in order or order.index(left) < order.index(right)
