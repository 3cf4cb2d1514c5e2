from __future__ import annotations

from typing import Any

import pytest

from tinykube.server.patch import golang


@pytest.mark.parametrize(
    ("value", "plain", "literal"),
    [
        (None, "<nil>", "interface {}(nil)"),
        (True, "true", "true"),
        (3, "3", "3"),
        (1.5, "1.5", "1.5"),
        (2.0, "2", "2"),
        ("a b", "a b", '"a b"'),
        ([1, "x"], "[1 x]", '[]interface {}{1, "x"}'),
        ([None], "[<nil>]", "[]interface {}{interface {}(nil)}"),
        ({"b": 1, "a": [2]}, "map[a:[2] b:1]", 'map[string]interface {}{"a":[]interface {}{2}, "b":1}'),
    ],
)
def test_values_are_printed_as_go_prints_them(value: Any, plain: str, literal: str) -> None:
    assert golang.plain(value) == plain
    assert golang.literal(value) == literal


def test_types_have_their_names_in_go() -> None:
    values: list[Any] = [{}, [], "", True, 1, 1.5, None]
    named = [golang.type_name(each) for each in values]
    assert named == ["map[string]interface {}", "[]interface {}", "string", "bool", "int64", "float64", "<nil>"]
