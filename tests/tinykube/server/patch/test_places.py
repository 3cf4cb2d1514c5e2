"""Merged lists come out as they always did, and large ones in no time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.tinykube.server.patch import reference
from tinykube.server import schema
from tinykube.server.kinds import CONFIG_MAP, POD
from tinykube.server.patch import order, strategic
from tinykube.server.patch.places import identity
from tinykube.server.schema import ANY

Json = dict[str, Any]

MANY = 30_000

# Few of them, so that they meet; and some that are equal though they are written differently.
SCALARS = st.sampled_from(["", "a", "b", "c", "d", "1", 0, 1, True, False, 1.0, -0.0, 0.5, 2**64, float(2**64), None])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)
LETTERS = st.sampled_from("abcdefgh")
NAMES = st.lists(LETTERS, max_size=12) | st.lists(VALUES, max_size=8)
OBJECTS = NAMES.map(lambda names: [{"n": name, "v": index} for index, name in enumerate(names)])


@given(VALUES, VALUES)
def test_what_is_hashed_is_equal_as_the_values_are(one: Any, other: Any) -> None:
    assert (identity(one) == identity(other)) is (one == other)
    assert identity(deepcopy(one)) == identity(one)


def test_numbers_that_python_hashes_alike_are_told_apart() -> None:
    modulus = 2**61 - 1
    assert len({hash(identity(turn * modulus)) for turn in range(1000)}) > 900


@given(NAMES, NAMES, NAMES)
def test_plain_values_are_ordered_as_by_searching(merged: list[Any], wanted: list[Any], live: list[Any]) -> None:
    fast, slow = (each.ordered(merged, wanted, live, order.itself) for each in (order, reference))
    assert [*map(repr, fast)] == [*map(repr, slow)]


@given(OBJECTS, OBJECTS, OBJECTS)
def test_objects_are_ordered_as_by_searching(merged: list[Any], wanted: list[Any], live: list[Any]) -> None:
    name = order.by("n")
    assert order.ordered(merged, wanted, live, name) == reference.ordered(merged, wanted, live, name)


@given(OBJECTS, st.lists(st.tuples(LETTERS | SCALARS, st.sampled_from(["", "", "delete", "replace"])), max_size=8))
def test_lists_are_remembered_as_by_searching(live: list[Json], changes: list[tuple[Any, str]]) -> None:
    patch = [{"n": name, **({"$patch": directive} if directive else {})} for name, directive in changes]
    live = [*live, {"v": "without a name"}]
    assert order.remembered(live, patch, "n") == reference.remembered(live, patch, "n")


@given(NAMES)
def test_repetitions_go_as_by_searching(items: list[Any]) -> None:
    assert [*map(repr, strategic._deduplicated(items))] == [*map(repr, reference.deduplicated(items))]


@given(OBJECTS, OBJECTS, st.lists(st.booleans(), max_size=12))
def test_items_are_deleted_as_by_searching(live: list[Json], patch: list[Json], deletes: list[bool]) -> None:
    live = [*live, {"v": "without a name"}]
    patch = [{**each, "$patch": "delete"} if gone else each for each, gone in zip(patch, deletes, strict=False)]
    assert strategic._specials(live, patch, "n")[0] == reference.without_deleted(live, patch, "n")


@given(OBJECTS, OBJECTS, st.lists(st.booleans(), min_size=12, max_size=12))
def test_items_are_merged_as_by_searching(live: list[Json], patch: list[Json], lose: list[bool]) -> None:
    """Also where an item loses its name by a directive, so that the next one of that name finds another item."""
    gone = {"$deleteFromPrimitiveList/n": None}
    patch = [{**each, **(gone if loses else {})} for each, loses in zip(patch, lose, strict=False)]
    slow = reference.merged_items(live, deepcopy(patch), "n", lambda one, other: strategic._merge(one, other, ANY))
    assert strategic._merge_items(live, deepcopy(patch), "n", ANY) == slow


def test_a_long_list_turned_around_is_merged_in_no_time() -> None:
    """Each item was looked for in the list whenever it was compared to another, which would take days."""
    names = [f"a/b{turn}" for turn in range(MANY)]
    live = {"metadata": {"name": "a", "finalizers": names}}
    patch = {"metadata": {"finalizers": names[::-1]}}
    assert strategic.apply(live, patch, schema.of(CONFIG_MAP))["metadata"]["finalizers"] == names[::-1]


def test_so_are_many_objects_that_are_changed_added_and_deleted_with_an_order() -> None:
    names = [f"e{turn}" for turn in range(MANY)]
    kept, gone, new = names[: MANY // 3], names[MANY // 3 : 2 * MANY // 3], names[2 * MANY // 3 :]
    live = {"containers": [{"name": "c", "env": [{"name": name, "value": "1"} for name in kept + gone]}]}
    wanted = (kept + new)[::-1]
    patch = {
        "name": "c",
        "$setElementOrder/env": [{"name": name} for name in wanted],
        "env": [
            *({"name": name, "value": "2"} for name in wanted),
            *({"name": name, "$patch": "delete"} for name in gone),
        ],
    }
    merged = strategic.apply({"spec": live}, {"spec": {"containers": [patch]}}, schema.of(POD))
    assert merged["spec"]["containers"][0]["env"] == [{"name": name, "value": "2"} for name in wanted]


def test_so_are_repetitions_and_values_to_remove() -> None:
    names = [f"a/b{turn}" for turn in range(MANY)]
    live = {"metadata": {"name": "a", "finalizers": names + names[::-1]}}
    patch: Json = {"metadata": {"finalizers": names}}
    assert strategic.apply(live, patch, schema.of(CONFIG_MAP))["metadata"]["finalizers"] == names
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": names}}
    assert strategic.apply(live, patch, schema.of(CONFIG_MAP))["metadata"]["finalizers"] == []
