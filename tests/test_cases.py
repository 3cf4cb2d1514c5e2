"""Every case of the upstream systems is answered as they do, or the difference is written down with its reason."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from subak.dialects.interpreter import Interpreter
from subak.model.reason import Refusal
from tests.cases import koordinator
from tests.cases.__main__ import main
from tests.cases.answers import ANSWERS
from tests.cases.prose import left_out, read_before, rows
from tests.cases.runner import Case, read, run

DATA = Path(__file__).parent / "data"
FILES = [DATA / f"{system}_cases.md" for system in ("hami", "volcano", "koordinator", "subak")]
CASES = [case for file in FILES for case in read(file)[0]]
PAGE = Path(__file__).parents[1] / "docs" / "decisions" / "0002-deliberate-differences.md"


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES if not case.quirk])
def test_the_product_answers_as_upstream_does(case: Case) -> None:
    result = run(case, ANSWERS)
    assert result.agrees, f"{case.fn}\n  got  {result.got!r}\n  want {case.want!r}"


def test_the_page_lists_exactly_the_cases_that_differ() -> None:
    (section,) = re.findall(r"^## Cases that differ\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    listed = re.findall(r"^\| `([^`]+)` \|", section, re.M)
    differing = [case.id for case in CASES if case.quirk and not run(case, ANSWERS).agrees]
    assert sorted(listed) == sorted(differing)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device-allocate-hint", '{"gpu":{"exclusivePolicy":"PCIeLevel"}}'),
        ("reservation-affinity", '{"reservationSelector":{"team":"a"}}'),
        ("numa-topology-spec", '{"numaTopologyPolicy":"SingleNUMANode"}'),
    ],
)
def test_what_the_page_calls_unsupported_is_refused_in_these_words(key: str, value: str) -> None:
    asking = koordinator.pod({"core": 100, "ratio": 100}, {f"scheduling.koordinator.sh/{key}": value})
    with pytest.raises(Refusal, match=f"{key} is not supported yet"):
        Interpreter().admit(asking)


def test_no_id_is_given_twice() -> None:
    assert [id for id, times in Counter(case.id for case in CASES).items() if times > 1] == []


GOOD = "- {id: good, fn: gen_reason, in: {counts: {CardNotHealth: 1}, cards: 2}, out: 1/2 CardNotHealth}\n"
SPOILED = "- {id: spoiled, fn: gen_reason, in: {counts: {CardNotHealth: 1}, cards: 2}, out: 2/2 CardNotHealth}\n"
UNKNOWN = "- {id: unknown, fn: guess_reason, in: {}, out: 1/2 CardNotHealth}\n"
CRASHING = "- {id: crashing, fn: gen_reason, in: {}, out: 1/2 CardNotHealth}\n"


def file_of(folder: Path, *texts: str) -> str:
    path = folder / "some_cases.md"
    path.write_text("# Some cases\n\n```yaml\n" + "".join(texts) + "```\n", encoding="utf-8")
    return str(path)


def test_all_well_prints_only_the_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(tmp_path, GOOD)]) == 0
    assert capsys.readouterr().out == "1 of 1\n"


def test_a_spoiled_expectation_is_reported_with_got_and_want(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file_of(tmp_path, GOOD, SPOILED)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "spoiled gen_reason",
        "  got  '1/2 CardNotHealth'",
        "  want '2/2 CardNotHealth'",
        "1 of 2",
    ]


def test_a_quirk_may_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quirk = SPOILED.replace("fn:", "quirk: true, fn:")
    assert main([file_of(tmp_path, GOOD, quirk)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "spoiled gen_reason (quirk)"
    assert printed[-1] == "1 of 2"


def test_an_unknown_function_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(tmp_path, UNKNOWN, GOOD)]) == 1
    printed = capsys.readouterr().out
    assert "  got  'no such function: guess_reason'\n" in printed
    assert printed.endswith("1 of 2\n")


def test_a_crash_is_an_answer_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([file_of(tmp_path, CRASHING, GOOD)]) == 1
    printed = capsys.readouterr().out
    assert "KeyError" in printed
    assert printed.endswith("1 of 2\n")


def test_a_file_without_cases_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty_cases.md"
    empty.write_text("# No cases\n\nOnly words.\n", encoding="utf-8")
    assert main([str(empty)]) == 1
    assert capsys.readouterr().out.splitlines() == [f"cannot be read: {empty}: no cases found", "0 of 0"]
    assert main([str(tmp_path / "missing.md")]) == 1
    assert "No such file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("- {id: halved, fn: gen_reason\n", "some_cases.md:3: no valid YAML"),
        ("- {id: nameless, out: 1}\n", "some_cases.md:3: case nameless of this block is no case"),
        ("- {fn: gen_reason, out: 1}\n", "some_cases.md:3: entry 1 of this block is no case"),
        ("just words\n", "some_cases.md:3: entry 1 of this block is no case"),
    ],
)
def test_a_block_that_cannot_be_read_is_named(
    text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([file_of(tmp_path, text)]) == 1
    (line, count) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"cannot be read: {named}")
    assert count == "0 of 0"


PROSE = """# Some cases

## A. In a table with ids
| id | input | expected |
|---|---|---|
| A1 [U] | two | four |
| A2 | three | nine |

## B. In one without
| input | expected |
|---|---|
| two | four |

## C. In sentences
C01. Two is four. C02. Three is nine.

## D. A section of words
All is well.
"""


def test_every_case_in_prose_is_found(tmp_path: Path) -> None:
    path = tmp_path / "some_cases.md"
    path.write_text(PROSE, encoding="utf-8")
    found = [(row.id, row.line) for row in rows(path)]
    assert found == [("A1", 6), ("A2", 7), ("B1", 12), ("C01", 15), ("C02", 15), ("D", 17)]


def test_prose_that_nobody_turned_into_cases_is_named_row_by_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "volcano_cases.md"
    path.write_text(PROSE, encoding="utf-8")
    assert main([str(path)]) == 1
    unread = [line for line in capsys.readouterr().out.splitlines() if "nobody has turned into a case yet" in line]
    assert [line.split()[4] for line in unread] == ["A1", "A2", "B1", "C01", "C02", "D"]


def test_prose_is_answered_by_the_cases_that_stand_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(DATA / "hami_cases.md")]) == 0
    assert "hami_cases.md: 10 cases in prose; 9 stand in tests/data, 1 are left out\n" in capsys.readouterr().out


def test_prose_that_has_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "hami_cases.md"
    text = (DATA / "hami_cases.md").read_text(encoding="utf-8")
    path.write_text(text.replace("stolen (5 min expiry)", "stolen (6 min expiry)"), encoding="utf-8")
    assert main([str(path)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cannot be read")]
    assert "J5 is prose that nobody has turned into a case yet" in line


def test_what_the_page_leaves_out_are_rows_of_the_tables() -> None:
    """Each letter or id that decision 2 names as left out is one that was read."""
    page = PAGE.read_text(encoding="utf-8")
    for file, read_once in read_before().items():
        ids = set(read_once.values())
        assert left_out(file, page) <= ids | {id[0] for id in ids}


def test_several_files_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, GOOD)
    assert main([path, path]) == 0
    assert capsys.readouterr().out == "2 of 2\n"


def test_without_files_it_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: python -m tests.cases")
