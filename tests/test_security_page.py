"""The page about attacks names tests that exist, and three pages say the same of what is no boundary."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reference" / "security.md"
BOUNDARY = re.compile(r"Containers of `subak up` are no boundary .*?\.(?= |$)")

_TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row of each table, without the heads."""
    lines = text.splitlines()
    for before, line in pairwise(lines):
        if line.startswith("|") and before.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


ROWS = list(rows(PAGE.read_text(encoding="utf-8")))


@cache
def named_in(path: str) -> frozenset[str]:
    """The tests of a file, read and not run: `test_name` or `TestClass::test_name`."""
    file = ROOT / path
    return frozenset(_tests(ast.parse(file.read_text(encoding="utf-8")), "")) if file.exists() else frozenset()


def _tests(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for each in tree.body:
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            yield from _tests(each, f"{prefix}{each.name}::")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
            yield prefix + each.name


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_each_row_names_a_test_that_exists(row: list[str]) -> None:
    *_, named = row
    found = _TEST.findall(named)
    assert found, f"{row[0]}: no test is named"
    assert not _TEST.sub("", named).strip(" ,;"), f"{row[0]}: only tests are named in the last column"
    for path, test in found:
        assert test in named_in(path), f"{path} has no {test}"


def test_all_rows_are_as_wide_as_their_table() -> None:
    assert {len(row) for row in ROWS} == {4}


def test_the_same_sentence_says_everywhere_what_is_no_boundary() -> None:
    pages = (PAGE, PAGE.with_name("up.md"), ROOT / "ARCHITECTURE.md")
    said = {page.name: BOUNDARY.findall(" ".join(page.read_text(encoding="utf-8").split())) for page in pages}
    assert all(len(sentences) == 1 for sentences in said.values()), said
    assert len({sentences[0] for sentences in said.values()}) == 1, said
