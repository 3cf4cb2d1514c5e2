"""Every case of the upstream systems is answered as they do, or the difference is written down with its reason."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from subak.dialects.interpreter import Interpreter
from subak.model.reason import Refusal
from tests.cases import koordinator, volcano
from tests.cases.__main__ import main
from tests.cases.answers import ANSWERS
from tests.cases.runner import Case, cases, run

DATA = Path(__file__).parent / "data"
FILES = [DATA / f"{system}_cases.md" for system in ("hami", "volcano", "koordinator", "subak")]
CASES = [case for file in FILES for case in cases(file)]
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


def test_a_policy_for_gangs_is_refused() -> None:
    asking = volcano.pod("p", [{"vgpu-number": 1}], annotations={"volcano.sh/vgpu-podgroup-policy": "spread"})
    with pytest.raises(Refusal, match="is not supported yet"):
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


def test_several_files_are_counted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, GOOD)
    assert main([path, path]) == 0
    assert capsys.readouterr().out == "2 of 2\n"


def test_without_files_it_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: python -m tests.cases")
