"""What differs between two versions of an object, as sets of fields.

The schema says how far to look: a map or list that is atomic is one field, whatever it holds; of a list that is a map
or a set, each item is a field.  What is equal is not looked into.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tinykube.server.patch import fieldset
from tinykube.server.patch.fieldset import LEAF, SELF, Fields
from tinykube.server.schema import ANY, Field

_PLAIN = (str, int, float, bool)


class Malformed(Exception):
    """A list that is a map or a set has an item that cannot be in one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`gained`: fields that are new or have another value.  `lost`: fields that are gone."""

    gained: Fields
    lost: Fields

    @property
    def all(self) -> Fields:
        """Both."""
        return fieldset.union(self.gained, self.lost)


def child(schema: Field, key: str) -> Field:
    """The schema of a field of an object or map."""
    if schema.properties is not None and key in schema.properties:
        return schema.properties[key]
    return schema.values or ANY


def is_granular(schema: Field) -> bool:
    """Whether each item of a list is a field."""
    return schema.list_type in ("map", "set") or (not schema.list_type and "merge" in schema.strategies)


def keys_of(schema: Field) -> tuple[str, ...]:
    """The keys of a list that is a map; a set has none."""
    if schema.list_type or not schema.merge_key:
        return schema.keys
    return (schema.merge_key,)


def step_to(schema: Field, item: Any) -> str:
    """The step from a granular list to one of its items."""
    keys = keys_of(schema)
    if not keys:
        if not isinstance(item, _PLAIN):
            raise Malformed(_WRONG_IN_SET[type(item)])
        return fieldset.value_step(item)
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise Malformed(f"associative list with keys may not have {what}")
    found = []
    for key in keys:
        value = item[key] if key in item else child(schema.items or ANY, key).default
        if value is not None or key in item:
            found.append((key, value))
    if not found:
        names = "[" + " ".join(f'"{key}"' for key in keys) + "]"
        raise Malformed(
            f"associative list with keys has an element that omits all key fields {names}"
            " (and doesn't have default values for any key fields)"
        )
    return fieldset.key_step(tuple(sorted(found)))


_WRONG_IN_SET = {
    dict: "associative list without keys has an element that's a map type",
    list: "not supported: associative list with lists as elements",
    type(None): "associative list without keys has an element that's an explicit null",
}


def whole(schema: Field, value: Any) -> Fields:
    """The node of a field that is new, or gone, with everything in it."""
    if not value or isinstance(value, _PLAIN):
        return LEAF
    if isinstance(value, dict):
        if schema.atomic:
            return LEAF
        node: Fields = {SELF: LEAF}
        for key, each in value.items():
            node["f:" + key] = LEAF if isinstance(each, _PLAIN) else whole(child(schema, key), each)
        return node
    if not is_granular(schema):
        return LEAF
    node = {SELF: LEAF}
    items = schema.items or ANY
    for each in value:
        step = step_to(schema, each)
        node[step] = LEAF if step in node else whole(items, each)
    return node


def compare(schema: Field, old: Any, new: Any) -> Comparison:
    """What differs between two objects."""
    gained: Fields = {}
    lost: Fields = {}
    for step, below, before, after in _pairs(schema, old, new):
        _compare(below, before, after, step, gained, lost)
    return Comparison(gained, lost)


_ABSENT = object()


def _compare(schema: Field, old: Any, new: Any, step: str, gained: Fields, lost: Fields) -> None:
    if old is _ABSENT:
        gained[step] = whole(schema, new)
    elif new is _ABSENT:
        lost[step] = whole(schema, old)
    elif old is new or old == new:
        return
    elif (isinstance(old, _PLAIN) and isinstance(new, _PLAIN)) or _is_leaf(schema, old, new):
        gained[step] = LEAF
    else:
        more: Fields = {}
        less: Fields = {}
        for next_step, below, before, after in _pairs(schema, old, new):
            _compare(below, before, after, next_step, more, less)
        if not _same_kind(old, new):  # only where the schema allows anything
            more[SELF] = LEAF
        if more:
            gained[step] = more if len(more) > 1 or SELF not in more else LEAF
        if less:
            lost[step] = less


def _is_leaf(schema: Field, old: Any, new: Any) -> bool:
    kinds = {type(each) for each in (old, new) if each and isinstance(each, dict | list)}
    if not kinds:
        return True  # null and empty differ, too
    return (kinds == {dict} and schema.atomic) or (kinds == {list} and not is_granular(schema))


def _same_kind(old: Any, new: Any) -> bool:
    return old is None or new is None or type(old) is type(new)


def _pairs(schema: Field, old: Any, new: Any) -> Iterator[tuple[str, Field, Any, Any]]:
    """Fields or items of either side with their steps and schemas; what is null has none."""
    if isinstance(old, list) or isinstance(new, list):
        yield from _items(schema, old, new)
        if not isinstance(old, dict) and not isinstance(new, dict):
            return
    before: dict[str, Any] = old if isinstance(old, dict) else {}
    after: dict[str, Any] = new if isinstance(new, dict) else {}
    for key, value in after.items():
        yield "f:" + key, child(schema, key), before.get(key, _ABSENT), value
    for key, value in before.items():
        if key not in after:
            yield "f:" + key, child(schema, key), value, _ABSENT


def _items(schema: Field, old: Any, new: Any) -> Iterator[tuple[str, Field, Any, Any]]:
    """Items of granular lists.  Several items with one step are one field, which is there or not."""
    if not is_granular(schema):
        return
    before, after = _by_step(schema, old), _by_step(schema, new)
    below = schema.items or ANY
    for step in {**before, **after}:
        left, right = before.get(step, ()), after.get(step, ())
        if len(left) == 1 or len(right) == 1:
            yield step, below, left[0] if len(left) == 1 else _ABSENT, right[0] if len(right) == 1 else _ABSENT
        if len(left) > 1 or len(right) > 1:
            yield step, _OPAQUE, left if len(left) > 1 else _ABSENT, right if len(right) > 1 else _ABSENT


_OPAQUE = Field(atomic=True, list_type="atomic")


def _by_step(schema: Field, items: Any) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = {}
    for each in items if isinstance(items, list) else ():
        result.setdefault(step_to(schema, each), []).append(each)
    return result
