"""Sets of fields, written as `managedFields` writes them (FieldsV1): a tree of steps.

    {"f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}}}}}

A step is a field `f:NAME`, an item of a list by its keys `k:{...}`, by its value `v:...` or by its index `i:N`.  An
empty node is a member of the set; a node with children is a member only if it has a `.` too.  The root stands for the
whole object and is never a member.

Sets are never changed in place, and what two have in common is shared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tinykube.depth import too_deep
from tinykube.server.memo import remembered
from tinykube.server.patch import golang
from tinykube.server.schema import Field

Fields = dict[str, Any]
Path = tuple[str, ...]

LEAF: Fields = {}
SELF = "."

# Go writes these so that JSON can stand in HTML.
ESCAPED = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


# Steps


@remembered(4096, typed=True)
def value_step(value: str | int | float | bool) -> str:
    """The step to an item of a set."""
    return "v:" + _text(value)


def key_step(keys: tuple[tuple[str, Any], ...]) -> str:
    """The step to an item of a list that is a map: names and values of its keys, sorted by name."""
    try:
        return _key_step(keys)
    except TypeError:  # a value that cannot be hashed, and should not be here
        return _made_key_step(keys)


def _made_key_step(keys: tuple[tuple[str, Any], ...]) -> str:
    return "k:{" + ",".join(f'"{name}":{_text(value)}' for name, value in keys) + "}"


_key_step = remembered(4096)(_made_key_step)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(ESCAPED)


def printed(path: Iterable[str]) -> str:
    """A path for people: `.spec.containers[name="main"].image`."""
    return "".join(_printed_step(step) for step in path)


def _printed_step(step: str) -> str:
    sort, content = step[0], step[2:]
    if sort == "f":
        return "." + content
    if sort == "k":
        return "[" + ",".join(f"{name}={_shown(value)}" for name, value in json.loads(content).items()) + "]"
    return f"[={_shown(json.loads(content))}]" if sort == "v" else f"[{content}]"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "[" + ",".join(_shown(each) for each in value) + "]"
        case dict():
            return "".join(f"{name}={_shown(each)}" for name, each in value.items())
    return golang.literal(value)


@remembered(4096)
def rank(step: str) -> tuple[Any, ...]:
    """Sorts steps as the API server does: fields, keys, values, indices; numbers before texts."""
    sort, content = step[0], step[2:]
    if sort == "f":
        return (0, content)
    if sort == "k":
        return (1, tuple((name, *_weight(value)) for name, value in json.loads(content).items()))
    return (2, _weight(json.loads(content))) if sort == "v" else (3, int(content))


def _weight(value: Any) -> tuple[int, Any]:
    if isinstance(value, bool):
        return (2, value)
    return (0, value) if isinstance(value, int | float) else (1, str(value))


# Nodes


def is_member(node: Fields) -> bool:
    """Whether a node's own path is in the set, and not only paths below it."""
    return not node or SELF in node


def paths(fields: Fields, before: Path = ()) -> Iterator[Path]:
    """All members: those of a level first, then what is below them."""
    steps = sorted((step for step in fields if step != SELF), key=rank)
    yield from ((*before, step) for step in steps if is_member(fields[step]))
    for step in steps:
        yield from paths(fields[step], (*before, step))


def has(fields: Fields, path: Path) -> bool:
    """Whether a path is a member."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return is_member(fields)


def of_paths(paths: Iterable[Iterable[str]]) -> Fields:
    """The set of fields that are given by their names."""
    result: Fields = {}
    for path in paths:
        tree: Fields = LEAF
        for name in reversed([*path]):
            tree = {f"f:{name}": tree}
        result = union(result, tree)
    return result


# Algebra


def union(left: Fields, right: Fields) -> Fields:
    """Members of either."""
    if not left or not right:
        return left or right
    result = dict(left)
    for step, node in right.items():
        present = result.get(step)
        if present is None:
            result[step] = node
        elif present is not node and present != node:
            result[step] = _joined(present, node)
    return result


def _joined(left: Fields, right: Fields) -> Fields:
    """Two nodes of the same path as one."""
    joined = union(left, right)
    return joined if is_member(joined) or not (is_member(left) or is_member(right)) else {SELF: LEAF, **joined}


def intersection(left: Fields, right: Fields) -> Fields:
    """Members of both."""
    result: Fields = {}
    for step, node in left.items():
        if step == SELF or step not in right:
            continue
        other = right[step]
        below = intersection(node, other) if node and other else LEAF
        if is_member(node) and is_member(other):
            result[step] = {SELF: LEAF, **below} if below else LEAF
        elif below:
            result[step] = below
    return result


def difference(left: Fields, right: Fields) -> Fields:
    """Members of `left` that `right` does not have.  What is below a member of `right` stays."""
    return _less(left, right, deep=False)


def without(left: Fields, right: Fields) -> Fields:
    """Members of `left` that are neither members of `right` nor below one."""
    return _less(left, right, deep=True)


def _less(left: Fields, right: Fields, *, deep: bool) -> Fields:
    result = left
    for step, other in right.items():
        node = left.get(step)
        if node is None or step == SELF:
            continue
        gone = is_member(other)
        if gone and (deep or not node):
            rest: Fields | None = None
        else:
            rest = _rest(node, _less(node, other, deep=deep), gone)
        if rest is node:
            continue
        if result is left:
            result = dict(left)
        if rest is None:
            del result[step]
        else:
            result[step] = rest
    return result


def _rest(node: Fields, below: Fields, gone: bool) -> Fields | None:
    """What is left of a node: `below` is it without some children, `gone` says that it is no member any more."""
    if not node:
        return node
    if gone and SELF in below:
        below = {step: each for step, each in below.items() if step != SELF}
    elif len(below) == 1 and SELF in below:
        return LEAF  # a member without children
    return below or None


def named(fields: Fields, schema: Field) -> Fields:
    """The set, and all declared fields on the way to its members: `.spec` if it has `.spec.replicas`."""
    result: Fields = {}
    for step, node in fields.items():
        if step == SELF or not node:
            result[step] = node
            continue
        declared, below = _below(schema, step)
        inner = named(node, below) if below is not None else node
        result[step] = {SELF: LEAF, **inner} if declared and SELF not in inner else inner
    return result


def _below(schema: Field, step: str) -> tuple[bool, Field | None]:
    """Whether a step is to a declared field, and the schema of what is there."""
    if step.startswith("f:"):
        declared = (schema.properties or {}).get(step[2:])
        return declared is not None, declared or schema.values
    return False, schema.items


def canonical(fields: Any) -> Fields:
    """A client's set in the form in which we write it.  Steps of unknown sorts are dropped.  Raises ValueError."""
    result: Fields = {}
    for step, node in (fields or {}).items():
        if step == SELF:
            result[SELF] = LEAF
        elif step[1:2] != ":":
            raise ValueError(f"missing colon: {step}")
        elif step[0] in "fkvi":
            result[_canonical_step(step)] = canonical(node)
    return LEAF if len(result) == 1 and SELF in result else result


def _canonical_step(step: str) -> str:
    if step[0] not in "kv":
        return step
    if too_deep(step.encode()):
        raise ValueError("exceeded max depth")
    given = json.loads(step[2:])
    return key_step(tuple(sorted(given.items()))) if step[0] == "k" else "v:" + _text(given)
