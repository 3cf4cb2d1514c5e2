from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinykube.server import schema
from tinykube.server.kinds import POD
from tinykube.server.patch import fieldset
from tinykube.server.patch.fieldset import Fields, Path

Paths = frozenset[Path]

steps = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])
sets = st.frozensets(st.lists(steps, min_size=1, max_size=3).map(tuple), max_size=8)


def tree(paths: Paths) -> Fields:
    """The obvious way to write a set."""
    result: Fields = {}
    for path in paths:
        node = result
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node.setdefault(path[-1], {})["."] = {}
    return without_lonely_dots(result)


def without_lonely_dots(node: Fields) -> Fields:
    if node.keys() == {"."}:
        return {}
    return {step: each if step == "." else without_lonely_dots(each) for step, each in node.items()}


def is_below(path: Path, others: Paths) -> bool:
    return any(path[:length] in others for length in range(1, len(path) + 1))


@given(sets)
def test_a_set_has_its_members_and_no_others(paths: Paths) -> None:
    assert frozenset(fieldset.paths(tree(paths))) == paths
    assert all(fieldset.has(tree(paths), path) for path in paths)
    assert not fieldset.has(tree(paths), ("f:none",))


@given(sets, sets)
@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (fieldset.union, lambda left, right: left | right),
        (fieldset.intersection, lambda left, right: left & right),
        (fieldset.difference, lambda left, right: left - right),
        (fieldset.without, lambda left, right: {path for path in left if not is_below(path, right)}),
    ],
    ids=["union", "intersection", "difference", "without"],
)
def test_the_algebra_is_that_of_sets(
    operation: Callable[[Fields, Fields], Fields],
    expected: Callable[[Paths, Paths], Paths],
    left: Paths,
    right: Paths,
) -> None:
    one, other = tree(left), tree(right)
    assert operation(one, other) == tree(frozenset(expected(left, right)))
    assert (one, other) == (tree(left), tree(right))


@given(sets)
def test_what_does_not_change_is_shared(paths: Paths) -> None:
    fields = tree(paths)
    assert fieldset.difference(fields, {"f:none": {}}) is fields


def test_steps_say_keys_in_order_and_values_as_json() -> None:
    assert fieldset.key_step((("containerPort", 80), ("protocol", "TCP"))) == 'k:{"containerPort":80,"protocol":"TCP"}'
    assert fieldset.value_step("a<b") == 'v:"a\\u003cb"'


def test_one_is_not_true() -> None:
    assert (fieldset.value_step(1), fieldset.value_step(True)) == ("v:1", "v:true")


def test_keys_of_any_kind_are_told() -> None:
    assert fieldset.printed([fieldset.key_step((("name", ["x", None]),))]) == '[name=["x",null]]'
    assert fieldset.printed([fieldset.key_step((("name", {"x": None}),))]) == "[name=x=null]"


def test_paths_are_told_as_people_write_them() -> None:
    path = ("f:spec", "f:containers", 'k:{"name":"main"}', "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}')
    assert fieldset.printed(path) == '.spec.containers[name="main"].ports[containerPort=80,protocol="TCP"]'
    assert fieldset.printed(("f:metadata", "f:finalizers", 'v:"x.io/a"')) == '.metadata.finalizers[="x.io/a"]'
    assert fieldset.printed(("f:list", "i:2")) == ".list[2]"


def test_members_come_before_what_is_below_and_numbers_in_their_order() -> None:
    ports: Fields = {f'k:{{"port":{port}}}': {".": {}, "f:name": {}} for port in (443, 80)}
    assert [fieldset.printed(path) for path in fieldset.paths({"f:z": {}, "f:ports": ports})] == [
        ".z", ".ports[port=80]", ".ports[port=443]", ".ports[port=80].name", ".ports[port=443].name",
    ]  # fmt: skip


def test_declared_fields_on_the_way_become_members() -> None:
    fields = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:containers": {'k:{"name":"m"}': {"f:image": {}}}}}
    assert fieldset.named(fields, schema.of(POD)) == {
        "f:metadata": {".": {}, "f:labels": {".": {}, "f:a": {}}},
        "f:spec": {".": {}, "f:containers": {".": {}, 'k:{"name":"m"}': {"f:image": {}}}},
    }


def test_foreign_sets_are_written_our_way() -> None:
    foreign: Fields = {"f:a": {".": {}}, 'k:{ "b": 1, "a": "x" }': None, "v: 1": {}, "z:unknown": {"f:b": {}}}
    assert fieldset.canonical(foreign) == {"f:a": {}, 'k:{"a":"x","b":1}': {}, "v:1": {}}
    with pytest.raises(ValueError, match="missing colon"):
        fieldset.canonical({"no colon": {}})
    with pytest.raises(ValueError, match="Expecting"):
        fieldset.canonical({"k:{": {}})
