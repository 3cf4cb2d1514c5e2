"""How lists were merged before it had to be fast: by searching them again for each item, as the API server does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server.patch.order import DIRECTIVE, is_directed

Items = list[Any]
Name = Callable[[Any], Any]


def ordered(merged: Items, order: Items, live: Items, name: Name) -> Items:
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


def _sorted(items: Items, order: Items, name: Name) -> Items:
    result: Items = []
    for item in items:
        place = len(result)
        while place and _is_before(name(item), name(result[place - 1]), order):
            place -= 1
        result.insert(place, item)
    return result


def _is_before(left: Any, right: Any, order: Items) -> bool:
    return left not in order or right not in order or order.index(left) < order.index(right)


def remembered(live: Items, patch: Items, key: str) -> Items:
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


def deduplicated(items: Items) -> Items:
    items = list(items)
    for first in range(len(items)):
        second = first + 1
        while second < len(items):
            if items[first] == items[second]:
                last = items.pop()
                if second < len(items):
                    items[second] = last
            else:
                second += 1
    return items


def without_deleted(original: Items, patch: Items, key: str) -> Items:
    for item in patch:
        if item.get(DIRECTIVE) == "delete":
            original = [each for each in original if each.get(key) != item[key] or key not in each]
    return original


def merged_items(original: Items, patch: Items, key: str, merge: Callable[[Any, Any], Any]) -> Items:
    merged = list(original)
    for item in patch:
        for index, each in enumerate(merged):
            if each.get(key) == item[key]:
                merged[index] = merge(dict(each), item)
                break
        else:
            merged.append(item)
    return merged
