from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tinykube.server import schema
from tinykube.server.kinds import POD
from tinykube.server.patch import strategic
from tinykube.status import ApiError

Json = dict[str, Any]

LIVE: Json = {
    "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}, "finalizers": ["x.io/a", "x.io/b"]},
    "spec": {
        "containers": [
            {
                "name": "one",
                "image": "x",
                "args": ["a", "b"],
                "env": [{"name": name, "value": "1"} for name in "ABC"],
                "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}],
            },
            {"name": "two", "image": "y"},
        ],
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "volumes": [{"name": "v", "configMap": {"name": "c", "defaultMode": 420}}],
    },
}


def patched(patch: Any, live: Json = LIVE) -> Json:
    before = deepcopy(live)
    result = strategic.apply(live, patch, schema.of(POD))
    assert live == before
    return result


def containers(*patches: Json, **more: Any) -> list[Json]:
    found: list[Json] = patched({"spec": {"containers": list(patches), **more}})["spec"]["containers"]
    return found


def env(*patches: Json, **more: Any) -> list[str]:
    changed = containers({"name": "one", "env": list(patches), **more})
    return [each["name"] for each in changed[0]["env"]]


def refusal(patch: Any) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as caught:
        patched(patch)
    return caught.value.code, caught.value.reason, caught.value.message


def test_objects_merge_and_null_removes() -> None:
    patch = {"metadata": {"labels": {"a": None, "c": "3", "d": None}}}
    assert patched(patch)["metadata"]["labels"] == {"b": "2", "c": "3"}


def test_items_are_found_by_their_key_and_merged() -> None:
    one, two = containers({"name": "two", "image": "z"}, {"name": "one", "args": ["c"]})[::-1]
    assert (one["name"], one["image"], one["args"]) == ("one", "x", ["c"])
    assert two == {"name": "two", "image": "z"}


def test_items_of_the_patch_come_in_its_order_and_others_stay_among_them() -> None:
    assert [each["name"] for each in containers({"name": "new", "image": "z"})] == ["new", "one", "two"]
    assert [each["name"] for each in containers({"name": "two"}, {"name": "one"})] == ["two", "one"]
    assert [each["name"] for each in containers({"name": "two"}, {"name": "new"})] == ["one", "two", "new"]


def test_a_list_without_a_merge_key_is_replaced() -> None:
    assert patched({"spec": {"tolerations": []}})["spec"]["tolerations"] == []


def test_plain_values_are_added_once() -> None:
    patch = {"metadata": {"finalizers": ["x.io/b", "x.io/c"]}}
    assert patched(patch)["metadata"]["finalizers"] == ["x.io/a", "x.io/b", "x.io/c"]


def test_plain_values_are_deleted_by_a_parallel_list() -> None:
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a", "x.io/z"]}}
    assert patched(patch)["metadata"]["finalizers"] == ["x.io/b"]


def test_an_item_is_deleted_by_a_directive() -> None:
    assert containers({"name": "one", "$patch": "delete"}) == [{"name": "two", "image": "y"}]
    assert env({"name": "B", "$patch": "delete"}) == ["A", "C"]


def test_an_object_is_replaced_or_emptied_by_a_directive() -> None:
    assert patched({"metadata": {"labels": {"$patch": "replace", "c": "3"}}})["metadata"]["labels"] == {"c": "3"}
    assert patched({"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}


def test_a_list_is_replaced_by_a_directive_among_its_items() -> None:
    assert containers({"name": "new", "image": "z"}, {"$patch": "replace"}) == [{"name": "new", "image": "z"}]


def test_a_source_is_exchanged_by_retaining_keys() -> None:
    patch = {"name": "v", "emptyDir": {}, "$retainKeys": ["name", "emptyDir"]}
    assert patched({"spec": {"volumes": [patch]}})["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]


def test_directives_and_nulls_in_what_comes_anew_are_left_out() -> None:
    patch = {"spec": {"affinity": {"nodeAffinity": {"$patch": "delete"}, "podAffinity": None}}}
    assert patched(patch)["spec"]["affinity"] == {}


def test_an_order_places_what_the_patch_names() -> None:
    order = [{"name": name} for name in "CDA"]
    assert env({"name": "D", "value": "1"}, **{"$setElementOrder/env": order}) == ["B", "C", "D", "A"]
    assert env(**{"$setElementOrder/env": [{"name": "C"}, {"name": "A"}]}) == ["B", "C", "A"]


def test_kubectl_apply_puts_a_new_item_where_the_old_one_was() -> None:
    """The API server merges in place: what is added takes the place of what was deleted before."""
    order = [{"name": name} for name in ("A", "D")]
    gone = [{"name": "B", "$patch": "delete"}, {"name": "C", "$patch": "delete"}]
    assert env({"name": "D", "value": "1"}, *gone, **{"$setElementOrder/env": order}) == ["A", "D"]
    assert env({"name": "D", "value": "1"}, gone[0], **{"$setElementOrder/env": [{"name": "D"}]}) == ["A", "C", "D"]


def test_an_order_of_plain_values() -> None:
    patch = {"metadata": {"$setElementOrder/finalizers": ["x.io/c", "x.io/a"], "finalizers": ["x.io/c"]}}
    assert patched(patch)["metadata"]["finalizers"] == ["x.io/c", "x.io/a", "x.io/b"]


def test_an_order_of_a_list_that_is_not_there_means_nothing() -> None:
    assert patched({"spec": {"$setElementOrder/hostAliases": [{"ip": "::1"}]}}) == LIVE


def test_an_order_of_a_list_that_comes_anew_or_stays() -> None:
    aliases = [{"ip": "::1"}, {"ip": "::2"}]
    patch = {"spec": {"$setElementOrder/hostAliases": aliases, "hostAliases": aliases}}
    assert patched(patch)["spec"]["hostAliases"] == aliases
    names = [{"name": "two"}, {"name": "one"}]
    turned = patched({"spec": {"$setElementOrder/containers": names}})["spec"]["containers"]
    assert [each["name"] for each in turned] == ["two", "one"]


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"metadata": {"$deleteFromPrimitiveList": ["x"]}}, 400, "invalid patch format of primitive list"),
        ({"metadata": {"$setElementOrder": ["x"]}}, 400, "invalid patch format of setElementOrder list"),
        ({"metadata": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"metadata": {"$retainKeys": ["x"], "labels": {}}}, 400, "invalid patch format of retainKeys"),
        ({"metadata": {"$patch": "zap"}}, 500, "unknown patch type: zap in map: map[$patch:zap]"),
        ({"spec": {"containers": [{"$patch": "merge"}]}}, 500, "merging lists cannot yet be specified in the patch"),
        (
            {"spec": {"containers": [{"image": "z"}]}},
            500,
            "map: map[image:z] does not contain declared merge key: name",
        ),
        ({"metadata": {"$setElementOrder/finalizers": "x"}}, 500, "expected a []interface {}, but received a string"),
        (
            {"metadata": {"$setElementOrder/finalizers": ["z"], "finalizers": ["q"]}},
            500,
            "The order in patch list:\n[q]\n doesn't match $setElementOrder list:\n[z]\n",
        ),
        (
            {"metadata": {"$setElementOrder/zork": ["x"], "zork": ["x"]}},
            500,
            'unable to find api field in struct ObjectMeta for the json field "zork"',
        ),
        (
            {"metadata": {"finalizers": [3]}},
            500,
            "list element types are not identical: [[x.io/a x.io/b] [3]]",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(patch: Any, code: int, message: str) -> None:
    assert refusal(patch) == (code, "BadRequest" if code == 400 else "", message)


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"metadata": {"annotations": {"note": {"x": None}}}}, {"metadata": {"annotations": {"note": {}}}}),
        ({"metadata": {"labels": {"$retainKeys": ["a"], "a": "2"}}}, {"metadata": {"labels": {"a": "2"}}}),
        ({"spec": {"$setElementOrder/containers": [{"name": "one"}], "containers": []}}, {"spec": {}}),
        ({"metadata": {"labels": {"$patch": "replace", "a": "2"}}}, {"metadata": {"labels": {"a": "2"}}}),
        ({"metadata": {"labels": None}}, {"metadata": {"labels": None}}),
    ],
)
def test_what_is_left_of_a_patch_is_what_was_not_dealt_with(patch: Json, left: Json) -> None:
    assert strategic.applied(LIVE, patch, schema.of(POD))[1] == left


def test_null_as_a_patch_changes_nothing() -> None:
    assert patched(None) == LIVE
