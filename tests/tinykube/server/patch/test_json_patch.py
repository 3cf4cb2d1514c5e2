from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tinykube.server.patch import json_patch
from tinykube.status import ApiError

POD = {"metadata": {"name": "p", "labels": {"a": "1", "x/y": "2"}}, "spec": {"args": ["a", "b", "c"], "n": None}}

REFUSED = (422, "Invalid", "the server rejected our request due to an error in our request")


def refusal(operations: Any) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as caught:
        json_patch.apply(POD, operations)
    return caught.value.code, caught.value.reason, caught.value.message


def args(*operations: dict[str, Any]) -> Any:
    return json_patch.apply(POD, list(operations))["spec"]["args"]


def labels(*operations: dict[str, Any]) -> Any:
    return json_patch.apply(POD, list(operations))["metadata"]["labels"]


def test_items_are_added_before_an_index_at_the_end_and_counted_from_the_end() -> None:
    assert args({"op": "add", "path": "/spec/args/1", "value": "x"}) == ["a", "x", "b", "c"]
    assert args({"op": "add", "path": "/spec/args/-", "value": "x"}) == ["a", "b", "c", "x"]
    assert args({"op": "add", "path": "/spec/args/3", "value": "x"}) == ["a", "b", "c", "x"]
    assert args({"op": "add", "path": "/spec/args/-1", "value": "x"}) == ["a", "b", "c", "x"]
    assert args({"op": "replace", "path": "/spec/args/-1", "value": "x"}) == ["a", "b", "x"]
    assert args({"op": "remove", "path": "/spec/args/0"}) == ["b", "c"]


def test_slashes_and_tildes_in_names_are_escaped() -> None:
    assert labels({"op": "remove", "path": "/metadata/labels/x~1y"}) == {"a": "1"}
    assert labels({"op": "add", "path": "/metadata/labels/~01", "value": "t"})["~1"] == "t"


def test_a_field_that_is_not_there_is_replaced_all_the_same() -> None:
    assert labels({"op": "replace", "path": "/metadata/labels/b", "value": "9"})["b"] == "9"


def test_what_is_copied_or_moved_stays_or_goes() -> None:
    assert labels({"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/b"})["b"] == "1"
    assert labels({"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b"}) == {"b": "1", "x/y": "2"}
    assert labels({"op": "copy", "from": "/metadata/labels/z", "path": "/metadata/labels/b"})["b"] is None


def test_a_copy_does_not_change_with_its_original() -> None:
    operations = [
        {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
        {"op": "add", "path": "/metadata/labels/new", "value": "1"},
    ]
    assert "new" not in json_patch.apply(POD, operations)["metadata"]["annotations"]


def test_the_document_itself_is_not_changed() -> None:
    before = deepcopy(POD)
    args({"op": "remove", "path": "/spec/args/0"}, {"op": "add", "path": "/spec/args/0", "value": "z"})
    assert before == POD


def test_a_test_that_holds_lets_the_rest_happen() -> None:
    operations = [{"op": "test", "path": "/metadata/labels/a", "value": "1"}, {"op": "remove", "path": "/spec/args/0"}]
    assert args(*operations) == ["b", "c"]
    assert args({"op": "test", "path": "/metadata/labels/none", "value": None}) == ["a", "b", "c"]
    assert args({"op": "test", "path": "", "value": POD}) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/labels/a", "value": "2"},
        {"op": "test", "path": "/metadata/labels/a", "value": 1},
        {"op": "test", "path": "/spec/args", "value": ["a", "b"]},
        {"op": "test", "path": "/metadata/labels", "value": {"a": "1"}},
        {"op": "remove", "path": "/metadata/labels/none"},
        {"op": "remove", "path": "/metadata/none/none"},
        {"op": "remove", "path": "/spec/args/3"},
        {"op": "remove", "path": "/spec/args/-"},
        {"op": "remove", "path": "/spec/n/x"},
        {"op": "add", "path": "/metadata/name/x", "value": 1},
        {"op": "add", "path": "/spec/args/x", "value": 1},
        {"op": "add", "path": "/spec/args/4", "value": 1},
        {"op": "add", "path": "", "value": {}},
        {"op": "add", "value": 1},
        {"op": "replace", "path": "/spec/args/3", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"op": "move", "from": "/metadata/labels/none", "path": "/metadata/labels/b"},
        {"op": "copy", "path": "/metadata/labels/b"},
        {"op": "zap", "path": "/metadata"},
        {"path": "/metadata"},
        None,
    ],
)
def test_what_does_not_apply_is_refused_without_saying_why(operation: Any) -> None:
    assert refusal([operation]) == REFUSED


def test_one_is_not_true_and_not_one_point_zero() -> None:
    for wrong in (True, 1.0):
        with pytest.raises(ApiError):
            json_patch.apply({"n": 1}, [{"op": "test", "path": "/n", "value": wrong}])
    with pytest.raises(ApiError):
        json_patch.apply({"n": [1]}, [{"op": "test", "path": "/n", "value": [True]}])


def test_what_is_no_list_of_operations_is_a_bad_request() -> None:
    before = "error decoding patch: json: cannot unmarshal"
    assert refusal({}) == (400, "BadRequest", f"{before} object into Go value of type []handlers.jsonPatchOp")
    assert refusal([3]) == (400, "BadRequest", f"{before} number into Go value of type handlers.jsonPatchOp")
    assert refusal([{"op": 3}]) == (
        400,
        "BadRequest",
        f"{before} number into Go struct field jsonPatchOp.op of type string",
    )


def test_there_may_be_ten_thousand_operations_and_no_more() -> None:
    nothing = {"op": "test", "path": "/metadata/name", "value": "p"}
    assert json_patch.apply(POD, [nothing] * 10_000) == POD
    assert refusal([nothing] * 10_001) == (
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    )


def test_unknown_members_of_operations_are_warned_of() -> None:
    operations = [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/a", "value": 1, "why": "x"}]
    assert json_patch.warnings(operations) == ['json patch unknown field "[1].why"']


def test_no_operations_change_nothing() -> None:
    assert json_patch.apply(POD, None) == POD
    assert json_patch.apply(POD, []) == POD


def test_copies_of_copies_are_bounded() -> None:
    document = {"data": {"x": "y" * 1000}}
    doubled = [{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(13)]
    with pytest.raises(ApiError) as caught:
        json_patch.apply(document, doubled)
    assert (caught.value.code, caught.value.reason, caught.value.message) == REFUSED
    assert json_patch.apply(document, doubled[:2])["data"]["1"] == {"x": "y" * 1000, "0": {"x": "y" * 1000}}


@pytest.mark.parametrize("levels", [200, 3_000])
def test_moves_make_no_more_levels_than_an_object_may_have(levels: int) -> None:
    deeper = [
        {"op": "add", "path": "/outer", "value": {}},
        {"op": "move", "from": "/inner", "path": "/outer/inner"},
        {"op": "move", "from": "/outer", "path": "/inner"},
    ]
    moves = [{"op": "add", "path": "/inner", "value": {}}, *deeper * levels]
    for operations in (moves, [*moves, {"op": "copy", "from": "/inner", "path": "/copy"}]):
        assert refusal(operations) == (400, "BadRequest", "the object has too many levels: exceeded max depth")
