"""What server-side apply does with values: find the fields of one, put one over another, take fields out.

As in a comparison, the schema says what is one field: an atomic map or list is, and each item of a granular list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tinykube.server.patch import fieldset
from tinykube.server.patch.comparison import child, is_granular, step_to
from tinykube.server.patch.fieldset import LEAF, SELF, Fields
from tinykube.server.schema import ANY, Field

Json = dict[str, Any]

_ABSENT = object()


# Fields


def fields_of(schema: Field, value: Any) -> Fields:
    """The set of all fields that a value has: its leaves, its items, and the keys of its maps."""
    nodes: dict[str, Fields | None] = {}
    if isinstance(value, dict) and not schema.atomic:
        for key, each in value.items():
            nodes["f:" + key] = _node(child(schema, key), each, is_item=key not in (schema.properties or {}))
    elif isinstance(value, list) and is_granular(schema):
        for each in value:
            step = step_to(schema, each)
            nodes[step] = LEAF if step in nodes else _node(schema.items or ANY, each, is_item=True)
    return {step: node for step, node in nodes.items() if node is not None}


def _node(schema: Field, value: Any, *, is_item: bool) -> Fields | None:
    """A field's node, or None if there is nothing to own, as in a list without items."""
    below = fields_of(schema, value)
    if isinstance(value, dict):
        is_member = is_item or not value or schema.atomic
    elif isinstance(value, list):
        is_member = is_item or not is_granular(schema)
    else:
        is_member = True
    if not below:
        return LEAF if is_member else None
    return {SELF: LEAF, **below} if is_member else below


# Merging


def merge(schema: Field, live: Any, applied: Any) -> Any:
    """A value with another one put over it: no field goes away, items come in the order of the second."""
    if _has_content(live) or _has_content(applied):
        # What is null has the shape of the other.
        shape = live if applied is _ABSENT or applied is None else applied
        if isinstance(shape, dict) and not schema.atomic:
            return _merge_objects(schema, live, applied)
        if isinstance(shape, list) and is_granular(schema):
            return _merge_lists(schema, live, applied)
    return live if applied is _ABSENT else applied


def _has_content(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _merge_objects(schema: Field, live: Any, applied: Any) -> Json:
    before: Json = live if isinstance(live, dict) else {}
    after: Json = applied if isinstance(applied, dict) else {}
    return {
        key: merge(child(schema, key), before.get(key, _ABSENT), after.get(key, _ABSENT)) for key in {**before, **after}
    }


def _merge_lists(schema: Field, live: Any, applied: Any) -> list[Any]:
    left = [(step_to(schema, each), each) for each in live] if isinstance(live, list) else []
    right = [(step_to(schema, each), each) for each in applied] if isinstance(applied, list) else []
    count = Counter(step for step, _ in left)
    before = {step: each for step, each in left if count[step] == 1}  # repeated items are not merged, but replaced
    items = schema.items or ANY
    return [
        merge(items, before.get(step, _ABSENT), value) if is_applied else value
        for step, value, is_applied in _interleaved(left, right)
    ]


_Items = list[tuple[str, Any]]


def _interleaved(left: _Items, right: _Items) -> Iterator[tuple[str, Any, bool]]:
    """Steps and items in the order of the merged list; the last value says whether the item is of the right.

    Items of the right come in its order.  Those that only the left has stay before the shared item that followed them.
    """
    ours, theirs = {step for step, _ in left}, {step for step, _ in right}
    shared = [step for step, _ in right if step in ours]
    done: set[str] = set()
    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left):
            step, value = left[i]
            if step not in theirs:
                yield step, value, False
                i += 1
                continue
            if j < len(right) and step != right[j][0] and shared and step != shared[0]:
                i += 1  # it comes, or came, where the right has it
                continue
            if step in done or (j < len(right) and step == right[j][0]):
                i += 1
        if j < len(right):
            step, value = right[j]
            yield step, value, True
            done.add(step)
            if shared and step == shared[0]:
                del shared[0]
            j += 1


# Removal


def remove(schema: Field, value: Any, fields: Fields) -> Any:
    """A value without these fields; a map or list of which nothing is left is null."""
    if isinstance(value, dict):
        if schema.atomic:
            return None
        kept = {}
        for key, each in value.items():
            node = fields.get("f:" + key)
            if node is None:
                kept[key] = each
            elif not fieldset.is_member(node):
                kept[key] = remove(child(schema, key), each, node)
        return kept or None
    if isinstance(value, list):
        return (_remove_items(schema, value, fields) if is_granular(schema) else None) or None
    return value


def _remove_items(schema: Field, value: list[Any], fields: Fields) -> list[Any]:
    kept = []
    for each in value:
        node = fields.get(step_to(schema, each))
        if node is None:
            kept.append(each)
        elif not fieldset.is_member(node):
            kept.append(remove(schema.items or ANY, each, node))
    return kept
