"""YAML within bounds: it says what it always said, and what is meant to harm ends as an error with its place."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.bombs import BOMB, MERGES
from tests.support.fuzz import examples
from tinykube.depth import LEVELS
from tinykube.yaml import ALIASED, Repeated, read

ROOT = Path(__file__).parents[2]


def content(text: str) -> Any:
    return read(text).content


def problem(text: str | bytes) -> str:
    with pytest.raises(yaml.YAMLError) as refused:
        read(text)
    mark = getattr(refused.value, "problem_mark", None)
    place = "" if mark is None else f"{mark.line + 1}:{mark.column + 1}: "
    return f"{place}{getattr(refused.value, 'problem', None) or refused.value}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", None),
        ("# nothing", None),
        (
            "a: 1\nb: [x, 'y', \"z\", ~]\nc: {d: on, e: off}",
            {"a": 1, "b": ["x", "y", "z", None], "c": {"d": 1, "e": 0}},
        ),
        ("[0x1f, 0b101, 017, 1_000, -3, 1.5, 1.0e+3, .5]", [31, 5, 15, 1000, -3, 1.5, 1000.0, 0.5]),
        ("[2026-11-15, 2026-11-15T10:00:00Z]", ["2026-11-15", "2026-11-15T10:00:00Z"]),
        ("[12:30:45, 1:30.5]", ["12:30:45", "1:30.5"]),
        ("['1', \"true\", !!str 1, ! 2, =]", ["1", "true", "1", "2", "="]),
        ("[!!int '7', !!float 7, !!bool yes, !!null '']", [7, 7.0, True, None]),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ("99999999999999999999", 1e20),
        ("a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}", {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}),
        ("[&x {k: 1}, &y {k: 2, m: 3}, {<<: [*x, *y], m: 4}]", [{"k": 1}, {"k": 2, "m": 3}, {"k": 1, "m": 4}]),
    ],
)
def test_what_a_text_says(text: str, said: Any) -> None:
    assert content(text) == said


def test_a_key_that_is_there_twice_is_noted_and_the_last_value_counts() -> None:
    found = read("a: 1\nb: {c: 1, 'c': 2}\na: 3\n")
    assert found.content == {"a": 3, "b": {"c": 2}}
    assert found.repeated == (Repeated("c", 2, 11), Repeated("a", 3, 1))


def test_a_key_that_overrides_a_merged_one_is_not_there_twice() -> None:
    text = "base: &base {x: 1}\np: {q: &own {<<: *base, x: 2}}\nuses: {<<: *own}\n"
    assert read(text).repeated == ()
    assert content(text)["uses"] == {"x": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, f"1:{LEVELS + 1}: exceeded max depth of {LEVELS}"),
        ("- " * 100_000, f"1:{LEVELS * 2 + 1}: exceeded max depth of {LEVELS}"),
        ("{a: " * 100_000, f"1:{LEVELS * 4 + 1}: exceeded max depth of {LEVELS}"),
        ("? " * 100_000, "exceeded max depth"),
        (BOMB, "document contains excessive aliasing"),
        (MERGES, "document contains excessive aliasing"),
        (f"a: &a {'x' * (ALIASED // 10)}\nb: [{','.join(['*a'] * 11)}]", "document contains excessive aliasing"),
        ("a: &a [*a]", "1:8: anchor 'a' value contains itself"),
        ("&a {b: {<<: *a}}", "1:13: anchor 'a' value contains itself"),
        ("a: *b", "1:4: found undefined alias"),
        (
            "a: " + "9" * 5_000,
            "1:4: not usable: no number in JSON is 99999999999999999999...; a text belongs in quotes",
        ),
        ("a: 0x" + "f" * 1_000_000, "1:4: not usable"),
        ("a: 1.0e+999", "1:4: not usable"),
        ("a: [.inf]", "1:5: not usable: no number in JSON is .inf"),
        ("a: .nan", "1:4: not usable"),
        ("? [a]\n: b", "1:3: found unhashable key"),
        ("a: !!binary aGk=", "1:4: could not determine a constructor for the tag"),
        ("a: !!set {x}", "1:4: could not determine a constructor for the tag"),
        ("a: !!int x", "1:4: 'x' is not what its tag"),
        ("a: {<<: 7}", "1:9: map merge requires map or sequence of maps"),
        ("a: 1\n---\nb: 2", "2:1: but found another document"),
        ("\n".join(f"%TAG !a{number}! x" for number in range(200_000)), "more than 100 lines begin with %"),
        ("a: '\ud800'", "the text has half a character"),
        (b"a: \xff", "invalid"),
    ],
    ids=range(24),
)
def test_what_harms_is_refused_with_its_place(text: str | bytes, told: str) -> None:
    assert told in problem(text)


def test_the_bounds_leave_room_for_what_people_write() -> None:
    assert content("[" * LEVELS + "]" * LEVELS)
    shared = content("env: &env [{name: A, value: b}]\nall: [" + ", ".join(["*env"] * 1_000) + "]")
    assert shared["all"] == [[{"name": "A", "value": "b"}]] * 1_000
    assert content("a: 1" + ":1" * 100_000) == {"a": "1" + ":1" * 100_000}


def test_many_values_can_be_refused_early() -> None:
    assert len(read("[" + "1," * 999 + "1]", most_values=1_001).content) == 1_000
    with pytest.raises(yaml.YAMLError, match="more than 1,000 values"):
        read("[" + "1," * 1_000_000 + "1]", most_values=1_000)


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    plain | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=30,
)


@given(value=values, flow=st.booleans())
def test_it_says_what_pyyaml_reads_in_it(value: Any, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert content(text) == yaml.safe_load(text)


signs = st.sampled_from("[]{}'\"#~\\\n\x00\u2028ab") | st.sampled_from(
    ["- ", "? ", ": ", ", ", "  ", "---\n", "|\n", ">-\n"]
)
words = st.sampled_from(["&a ", "*a", "&b ", "*b", "<<: ", "!!int ", "!x ", "%TAG ! y\n", "0x", "9" * 400, ".nan"])


@examples(50, ci=2_000)
@given(st.lists(signs | words, max_size=60).map("".join), st.sampled_from([1, 200]))
def test_any_text_is_read_or_refused(text: str, times: int) -> None:
    with suppress(yaml.YAMLError):
        read(text * times, only_first=True, most_values=10_000)


def test_nobody_else_reads_yaml() -> None:
    """PyYAML's loaders have no bounds: all YAML goes through one reader."""
    used = re.compile(r"yaml\.(?:safe_|full_|unsafe_)?load|Loader\b|yaml\.(?:compose|scan|parse)\b")
    files = [path for room in ("src", "bench") for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if used.search(path.read_text(encoding="utf-8"))}
    assert found == {"src/tinykube/yaml.py"}
