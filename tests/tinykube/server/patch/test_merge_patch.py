from __future__ import annotations

from typing import Any

import pytest

from tinykube.server.patch import merge_patch
from tinykube.status import ApiError


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        # The cases of RFC 7396 that are about objects.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        # What comes anew has no nulls in its objects, not even inside of lists, but lists may hold nulls.
        ({"a": ["b"]}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
        # Unless it takes the place of an object.
        ({"a": {"b": "c"}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
)
def test_null_removes_objects_merge_and_all_else_is_replaced(document: Any, patch: Any, expected: Any) -> None:
    before = repr(document), repr(patch)
    assert merge_patch.apply(document, patch) == expected
    assert (repr(document), repr(patch)) == before


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (None, "Invalid JSON Patch"),
        ([], "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (3, "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}"),
        ("x", "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}"),
    ],
)
def test_a_patch_is_an_object(patch: Any, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        merge_patch.apply({}, patch)
    assert (caught.value.code, caught.value.reason, caught.value.message) == (400, "BadRequest", message)
