from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinykube.server import schema
from tinykube.server.kinds import CONFIG_MAP, POD, SERVICE
from tinykube.server.patch import fieldset, merging
from tinykube.server.schema import ANY, Field

NAMED = Field("array", items=Field("object", properties={"name": Field("string")}), list_type="map", keys=("name",))
names = st.lists(st.sampled_from("abcdef"), unique=True)


def test_a_value_has_its_leaves_its_items_and_the_keys_of_its_maps() -> None:
    pod = {
        "metadata": {"labels": {"a": "1"}, "annotations": {}, "finalizers": ["f"]},
        "spec": {"hostNetwork": None, "containers": [{"name": "m", "args": ["x"], "ports": []}], "tolerations": []},
    }
    assert merging.fields_of(schema.of(POD), pod) == {
        "f:metadata": {"f:labels": {"f:a": {}}, "f:annotations": {}, "f:finalizers": {'v:"f"': {}}},
        "f:spec": {
            "f:hostNetwork": {},
            "f:containers": {'k:{"name":"m"}': {".": {}, "f:name": {}, "f:args": {}}},
            "f:tolerations": {},
        },
    }


def test_keys_that_are_not_declared_are_fields_themselves() -> None:
    assert merging.fields_of(ANY, {"a": {"b": {"c": 1}}}) == {"f:a": {".": {}, "f:b": {".": {}, "f:c": {}}}}


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ({"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ({"a": "1"}, {"a": "2"}, {"a": "2"}),
        ({"a": "1"}, {}, {"a": "1"}),
        ({"a": "1"}, None, {"a": "1"}),
        (None, {"a": "1"}, {"a": "1"}),
        ({}, None, None),
    ],
)
def test_maps_merge(live: Any, applied: Any, expected: Any) -> None:
    assert merging.merge(schema.of(CONFIG_MAP), {"data": live}, {"data": applied}) == {"data": expected}


def test_what_is_atomic_is_replaced() -> None:
    live, applied = {"spec": {"selector": {"a": "1"}}}, {"spec": {"selector": {"b": "1"}}}
    assert merging.merge(schema.of(SERVICE), live, applied) == applied


def test_where_anything_goes_the_applied_value_wins_whatever_it_is() -> None:
    assert merging.merge(ANY, {"a": {"b": 1}}, {"a": 1}) == {"a": 1}
    assert merging.merge(ANY, {"a": 1}, {"a": {"b": 1}}) == {"a": {"b": 1}}


def merged(live: list[str], applied: list[str]) -> list[str]:
    lists = [[{"name": each} for each in names] for names in (live, applied)]
    return [each["name"] for each in merging.merge(NAMED, *lists)]


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ("abc", "b", "abc"),
        ("abc", "d", "abcd"),
        ("abc", "dab", "dabc"),
        ("abc", "cb", "acb"),
        ("abcd", "xcya", "bxcdya"),
        ("ab", "ba", "ba"),
        ("", "ba", "ba"),
    ],
)
def test_items_come_in_the_order_of_what_is_applied(live: str, applied: str, expected: str) -> None:
    assert "".join(merged([*live], [*applied])) == expected


@given(names, names)
def test_no_item_is_lost_or_doubled_and_the_applied_order_holds(live: list[str], applied: list[str]) -> None:
    result = merged(live, applied)
    assert sorted(result) == sorted({*live, *applied})
    assert [each for each in result if each in applied] == applied
    assert [each for each in result if each not in applied] == [each for each in live if each not in applied]


def test_repeated_items_of_the_live_list_are_replaced_by_one() -> None:
    assert merged(["a", "b", "a"], ["a"]) == ["a", "b"]
    assert merged(["a", "b", "a"], ["c"]) == ["a", "b", "a", "c"]


def test_removal_takes_members_with_all_below_them() -> None:
    pod = {
        "metadata": {"labels": {"a": "1", "b": "2"}},
        "spec": {"containers": [{"name": "m", "image": "x"}, {"name": "n"}]},
    }
    gone: fieldset.Fields = {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:containers": {'k:{"name":"m"}': {"f:image": {}}, 'k:{"name":"n"}': {}}},
    }
    assert merging.remove(schema.of(POD), pod, gone) == {
        "metadata": {"labels": {"b": "2"}},
        "spec": {"containers": [{"name": "m"}]},
    }


def test_what_is_emptied_is_null() -> None:
    assert merging.remove(schema.of(CONFIG_MAP), {"data": {"a": "1"}}, {"f:data": {"f:a": {}}}) == {"data": None}


@given(names, names)
def test_removing_all_fields_of_a_value_leaves_nothing_of_it(live: list[str], applied: list[str]) -> None:
    lists = [[{"name": each} for each in each] for each in (live, applied)]
    whole = merging.merge(NAMED, *lists)
    left = merging.remove(NAMED, whole, merging.fields_of(NAMED, lists[1]))
    assert [each["name"] for each in left or []] == [each for each in live if each not in applied]
