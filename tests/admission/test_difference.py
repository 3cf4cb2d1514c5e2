"""A JSON Patch that a real API server's rules for patches accept."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subak.admission.difference import difference
from tinykube.server.patch import json_patch

keys = st.text("ab/~.0", min_size=1, max_size=3)
values = st.recursive(
    st.booleans() | st.integers(0, 2) | st.text("xy", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=4)


@given(objects, objects)
def test_the_operations_lead_from_one_object_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert json_patch.apply(copy.deepcopy(before), list(difference(before, after))) == after


@given(objects)
def test_what_is_equal_needs_no_operation(object: dict[str, Any]) -> None:
    assert list(difference(object, copy.deepcopy(object))) == []


def test_only_what_has_changed_is_written() -> None:
    before = {"spec": {"containers": [{"name": "a", "env": []}, {"name": "b"}]}}
    after = {"spec": {"containers": [{"name": "a", "env": []}, {"name": "b", "limits": {"x.io/y": "1"}}]}}
    assert list(difference(before, after)) == [
        {"op": "add", "path": "/spec/containers/1/limits", "value": {"x.io/y": "1"}}
    ]
