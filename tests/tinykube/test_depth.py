"""Levels of JSON, counted before anybody reads it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tinykube.depth import LEVELS, too_deep

nested = st.recursive(
    st.text(alphabet='[]{}"\\a', max_size=4) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"', max_size=2), inner, max_size=2),
    max_leaves=40,
)


def levels(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels, inner), default=0)


@given(nested, st.integers(0, 8))
def test_levels_are_those_of_the_value_whatever_its_texts_hold(value: Any, most: int) -> None:
    assert bool(too_deep(msgspec.json.encode(value), most)) == (levels(value) > most)


def test_the_bracket_that_is_too_much_is_told() -> None:
    assert too_deep(b"[" * LEVELS + b"]" * LEVELS) == ""
    assert too_deep(b"[" * LEVELS + b'{"a":1}' + b"]" * LEVELS) == "{"


def test_what_is_no_json_is_counted_too() -> None:
    assert too_deep(b'"' + b'\\"' * 500_000 + b"[" * 1_000) == ""
    assert too_deep(b'"\\' + b"[" * 1_000) == ""
    assert too_deep(b"[" * 100_000) == "["
