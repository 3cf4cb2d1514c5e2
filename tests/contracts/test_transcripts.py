"""Every answer is the one that a real API server gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.contracts.space import Space
from tests.contracts.transcript import Case, cases, played, record, recorded

Kept = dict[str, dict[str, list[Any]]]


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest, server: str) -> Iterator[Kept | None]:
    """Where answers are kept, by file and case, if they are to be recorded."""
    if server == "real" and request.config.getoption("--record"):
        kept: Kept = {}
        yield kept
        for file, said in kept.items():
            record(file, said)
    else:
        yield None


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_transcript(case: Case, space: Space, recording: Kept | None) -> None:
    answers = played(case, space)
    if recording is not None:
        recording.setdefault(case.file, {})[case.name] = answers
        return
    for step, (answer, expected) in enumerate(zip(answers, recorded(case.file)[case.name], strict=True), 1):
        assert answer == expected, f"step {step}"
