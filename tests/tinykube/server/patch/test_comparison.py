from __future__ import annotations

from typing import Any

import pytest

from tinykube.server import schema
from tinykube.server.kinds import CONFIG_MAP, POD, SERVICE
from tinykube.server.patch.comparison import Comparison, Malformed, compare
from tinykube.server.schema import ANY, Field

Json = dict[str, Any]


def of_pods(old: Json, new: Json) -> tuple[Any, Any]:
    found = compare(schema.of(POD), {"spec": old}, {"spec": new})
    return found.gained.get("f:spec"), found.lost.get("f:spec")


def test_equal_objects_differ_in_nothing() -> None:
    assert compare(schema.of(CONFIG_MAP), {"data": {"a": "1"}}, {"data": {"a": "1"}}) == Comparison({}, {})


def test_fields_are_gained_when_new_or_changed_and_lost_when_gone() -> None:
    found = compare(schema.of(CONFIG_MAP), {"data": {"a": "1", "b": "1"}}, {"data": {"a": "2", "c": "1"}})
    assert found == Comparison({"f:data": {"f:a": {}, "f:c": {}}}, {"f:data": {"f:b": {}}})


def test_a_map_that_is_new_is_a_field_beside_its_keys() -> None:
    found = compare(schema.of(CONFIG_MAP), {}, {"data": {"a": "1"}})
    assert found == Comparison({"f:data": {".": {}, "f:a": {}}}, {})
    assert compare(schema.of(CONFIG_MAP), {"data": None}, {"data": {"a": "1"}}).gained == {"f:data": {"f:a": {}}}


def test_null_and_empty_differ() -> None:
    assert compare(schema.of(CONFIG_MAP), {"data": None}, {"data": {}}).gained == {"f:data": {}}
    assert compare(schema.of(CONFIG_MAP), {"immutable": True}, {"immutable": None}).gained == {"f:immutable": {}}


def test_an_atomic_map_is_one_field() -> None:
    found = compare(schema.of(SERVICE), {"spec": {"selector": {"a": "1"}}}, {"spec": {"selector": {"b": "1"}}})
    assert found == Comparison({"f:spec": {"f:selector": {}}}, {})


def test_items_of_a_map_go_by_their_keys_and_defaults_count() -> None:
    old = {"containers": [{"name": "m", "ports": [{"containerPort": 80}]}]}
    new = {"containers": [{"name": "m", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]}]}
    port: Json = {'k:{"containerPort":80,"protocol":"TCP"}': {"f:protocol": {}, "f:name": {}}}
    assert of_pods(old, new) == ({"f:containers": {'k:{"name":"m"}': {"f:ports": port}}}, None)


def test_the_order_of_items_is_no_difference_but_that_of_an_atomic_list_is() -> None:
    one, two = {"name": "a", "args": ["x", "y"]}, {"name": "b"}
    assert of_pods({"containers": [one, two]}, {"containers": [two, one]}) == (None, None)
    turned = {**one, "args": ["y", "x"]}
    gained, lost = of_pods({"containers": [one]}, {"containers": [turned]})
    assert (gained, lost) == ({"f:containers": {'k:{"name":"a"}': {"f:args": {}}}}, None)


def test_items_of_a_set_go_by_themselves() -> None:
    old, new = {"metadata": {"finalizers": ["a", "b"]}}, {"metadata": {"finalizers": ["b", "c"]}}
    found = compare(schema.of(POD), old, new)
    assert found.gained == {"f:metadata": {"f:finalizers": {'v:"c"': {}}}}
    assert found.lost == {"f:metadata": {"f:finalizers": {'v:"a"': {}}}}


@pytest.mark.parametrize(
    ("old", "new", "gained", "lost"),
    [
        ([1, 1], [1, 1], None, None),
        ([1, 1], [1, 2], {}, None),
        ([1, 1], [], None, {}),
        ([], [1, 1], {}, None),
        ([1], [1, 1], {}, {".": {}, "f:name": {}, "f:value": {}}),
        ([1, 1], [1], {".": {}, "f:name": {}, "f:value": {}}, {}),
    ],
)
def test_items_that_are_there_twice_are_one_field(old: list[int], new: list[int], gained: Any, lost: Any) -> None:
    def spec(values: list[int]) -> Json:
        # A second item, so that the list is never empty.
        env = [{"name": "A", "value": str(value)} for value in values]
        return {"containers": [{"name": "m", "env": [{"name": "B"}, *env]}]}

    def item(fields: Any) -> Any:
        return fields and fields["f:containers"]['k:{"name":"m"}']["f:env"]['k:{"name":"A"}']

    found = of_pods(spec(old), spec(new))
    assert (item(found[0]), item(found[1])) == (gained, lost)


def test_items_without_keys_cannot_be_compared() -> None:
    keyed = Field("object", properties={"l": Field("array", items=ANY, list_type="map", keys=("name",))})
    several = Field("object", properties={"l": Field("array", items=ANY, list_type="set")})
    wrong: list[tuple[Field, Any, str]] = [
        (keyed, {}, "omits all key fields"), (keyed, None, "null element"), (keyed, 3, "non-map"),
        (several, {}, "map type"), (several, [], "lists as elements"), (several, None, "explicit null"),
    ]  # fmt: skip
    for lists, item, problem in wrong:
        with pytest.raises(Malformed, match=problem):
            compare(lists, {}, {"l": [item]})


def test_where_anything_goes_a_value_may_become_an_object_and_back() -> None:
    assert compare(ANY, {"a": 1}, {"a": {"b": 1}}) == Comparison({"f:a": {".": {}, "f:b": {}}}, {})
    assert compare(ANY, {"a": {"b": 1}}, {"a": 1}) == Comparison({"f:a": {}}, {"f:a": {"f:b": {}}})
    assert compare(ANY, {"a": [1]}, {"a": {"b": 1}}) == Comparison({"f:a": {".": {}, "f:b": {}}}, {})
    assert compare(ANY, {"a": [1]}, {"a": [2]}) == Comparison({"f:a": {}}, {})
