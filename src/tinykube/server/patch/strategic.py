"""Strategic merge patch: a merge patch that knows which lists are really maps or sets.

A list whose schema has the strategy `merge` is merged item by item: objects by their merge key, plain values by
themselves.  Directives in the patch say more than values can:

    $patch: delete | replace                in an object or in an item of a list: remove it, or take only what is here
    $deleteFromPrimitiveList/FIELD: [...]   remove these values from a list
    $setElementOrder/FIELD: [...]           the order that the items shall have
    $retainKeys: [...]                      remove all other fields of this object

Order: items that the patch names come as the patch (or $setElementOrder) has them, the others stay where they are among
them as well as can be.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tinykube.server.patch import golang, order, refusals
from tinykube.server.patch.order import DIRECTIVE, ORDER
from tinykube.server.patch.places import Places, identity
from tinykube.server.schema import ANY, Field

Json = dict[str, Any]
Items = list[Any]

RETAIN = "$retainKeys"
DELETE_FROM = "$deleteFromPrimitiveList"


def apply(document: Json, patch: Any, schema: Field) -> Json:
    """The document after the patch, which is what the body of the request says."""
    return applied(document, deepcopy(patch), schema)[0]


def applied(document: Json, patch: Any, schema: Field) -> tuple[Json, Json]:
    """The same, and what is left of the patch, which must be ours: it becomes a part of the document.

    The API server shows it if the document makes no sense.
    """
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        kind = {list: "array", str: "string", bool: "bool"}.get(type(patch), "number")
        raise refusals.bad_request(f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
    return _merge(dict(document), patch, schema), patch


# Objects


def _merge(original: Json, patch: Json, schema: Field) -> Json:
    """Merge a patch into a copy that is ours; takes out of the patch what it has dealt with."""
    if DIRECTIVE in patch:
        return _directed(patch)
    _retain(original, patch)
    _reorder(original, patch, schema)
    for key, value in patch.items():
        deleting = key.startswith(DELETE_FROM)
        field = _named(key, DELETE_FROM, "invalid patch format of primitive list") if deleting else key
        if value is None:
            original.pop(field, None)
        elif type(original.get(field)) is not type(value):
            if not deleting:
                patch[key] = _take(original, field, value)
        elif isinstance(value, dict):
            below = _below(schema, field)
            original[field] = value if _strategy(below) == "replace" else _merge(dict(original[field]), value, below)
        elif isinstance(value, list):
            below = _below(schema, field)
            if deleting or _strategy(below) == "merge":
                original[field] = _merge_lists(original[field], value, below, deleting)
            else:
                original[field] = value
        else:
            original[field] = value
    return original


def _directed(patch: Json) -> Json:
    if patch[DIRECTIVE] == "replace":
        del patch[DIRECTIVE]
        return patch
    if patch[DIRECTIVE] == "delete":
        return {}
    raise refusals.failed(f"unknown patch type: {golang.plain(patch[DIRECTIVE])} in map: {golang.plain(patch)}")


def _take(original: Json, key: str, value: Any) -> Any:
    """Take a value that comes anew: without nulls, and without what carries directives; gives what was taken."""
    value = _without_nulls(value)
    if order.is_directed(value):
        original.pop(key, None)
    else:
        value = original[key] = _undirected(value)
    return value


def _undirected(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _undirected(each) for key, each in value.items() if not order.is_directed(each)}
    if isinstance(value, list):
        return [_undirected(each) for each in value if not order.is_directed(each)]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _retain(original: Json, patch: Json) -> None:
    if RETAIN not in patch:
        return
    kept = patch.pop(RETAIN)
    if not isinstance(kept, list):
        raise refusals.bad_request("invalid patch format of retainKeys")
    names = {each for each in kept if isinstance(each, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_FROM, ORDER)) and key not in names:
            raise refusals.bad_request("invalid patch format of retainKeys")
    for key in [key for key in original if key not in names]:
        del original[key]


def _named(key: str, directive: str, problem: str) -> str:
    """The field that a parallel list speaks of."""
    before, slash, field = key.partition("/")
    if before != directive or not slash:
        raise refusals.bad_request(problem)
    return field


def _below(schema: Field, key: str) -> Field:
    if schema.properties is None and schema.values is not None:
        raise refusals.failed("merging an object in json but data type is not struct, instead is: map")
    if schema.properties is None:
        return ANY
    if key not in schema.properties:
        name = schema.go.rpartition(".")[2]
        raise refusals.failed(f"unable to find api field in struct {name} for the json field {golang.quoted(key)}")
    return schema.properties[key]


def _strategy(schema: Field) -> str:
    return next((each for each in schema.strategies if each != "retainKeys"), "")


def _reorder(original: Json, patch: Json, schema: Field) -> None:
    """Merge the lists that come with an order, and take both out of the patch."""
    for directive in [key for key in patch if key.startswith(ORDER)]:
        wanted = patch.pop(directive)
        if not isinstance(wanted, list):
            raise refusals.bad_type("[]interface {}", wanted)
        field = _named(directive, ORDER, "invalid patch format of setElementOrder list")
        items, changes = original.get(field), patch.get(field)
        for each, there in ((items, field in original), (changes, field in patch)):
            if there and not isinstance(each, list):
                raise refusals.bad_type("[]interface {}", each)
        below = _below(schema, field)
        name = order.by(below.merge_key) if below.merge_key else order.itself
        order.check(changes or [], wanted, name)
        if items is None and changes is None:
            continue
        if items is None:
            merged = _undirected(changes)
        elif changes is None:
            merged = items
        elif _strategy(below) == "merge":
            merged = _merge_lists(items, changes, below, deleting=False)
            items = order.remembered(items, changes, below.merge_key) if below.merge_key else items
        else:
            merged = changes
        _of_objects(items or [], changes or [])
        original[field] = order.ordered(merged, wanted, items or [], name)
        patch.pop(field, None)


# Lists


def _merge_lists(original: Items, patch: Items, schema: Field, deleting: bool) -> Items:
    if not original and not patch:
        return original
    if not _of_objects(original, patch):
        if deleting:
            gone = {identity(each) for each in patch}
            return [each for each in original if identity(each) not in gone]
        merged = _deduplicated([*original, *patch])
        return order.ordered(merged, patch, original, order.itself)
    key = schema.merge_key
    if not key:
        raise refusals.failed("cannot merge lists without merge key for struct")
    original, patch = _specials(original, patch, key)
    merged = _merge_items(original, patch, key, schema.items or ANY)
    return order.ordered(merged, patch, original, order.by(key))


def _of_objects(*lists: Items) -> bool:
    """Whether the items are objects; all must be of one type."""
    types = [type(each) for items in lists for each in items]
    if not types:
        raise refusals.failed("no elements in any of the given slices")
    if types[0] is list:
        raise refusals.unprocessable()
    if any(each is not types[0] for each in types):
        raise refusals.failed(f"list element types are not identical: {golang.plain(list(lists))}")
    return types[0] is dict


def _specials(original: Items, patch: Items, key: str) -> tuple[Items, Items]:
    """Follow the directives that are items of the patch; gives both lists without them."""
    rest, replaced = [], False
    gone = set()
    for item in patch:
        match item.get(DIRECTIVE):
            case None:
                rest.append(item)
            case "delete":
                if key not in item:
                    raise refusals.no_key(item, key)
                gone.add(identity(item[key]))
            case "replace":
                replaced = True
            case "merge":
                raise refusals.failed("merging lists cannot yet be specified in the patch")
            case other:
                raise refusals.failed(f"unknown patch type: {golang.plain(other)} in map: {golang.plain(item)}")
    if replaced:
        return rest, []
    return [each for each in original if key not in each or identity(each[key]) not in gone], rest


def _merge_items(original: Items, patch: Items, key: str, schema: Field) -> Items:
    merged = list(original)
    places = Places(identity(each.get(key)) for each in merged)
    for item in patch:
        if key not in item:
            raise refusals.no_key(item, key)
        place = places.first(identity(item[key]))
        if place is None:
            place = len(merged)
            merged.append(item)
        else:
            merged[place] = _merge(dict(merged[place]), item, schema)
        places.put(place, identity(merged[place].get(key)))  # directives can take the key away
    return merged


def _deduplicated(items: Items) -> Items:
    """Without repetitions; as in the API server, the last item fills the gap."""
    items = list(items)
    places = Places(map(identity, items))
    for first in range(len(items)):
        if first >= len(items):
            break
        while (second := places.first(places.names[first], after=first)) is not None:
            last, name = items.pop(), places.drop()
            if second < len(items):
                items[second] = last
                places.put(second, name)
    return items
