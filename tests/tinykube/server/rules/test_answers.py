"""The rules answer as a real API server has answered."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.tinykube.server.rules.cases import ANSWERS, Case, cases
from tests.tinykube.server.rules.world import World, answer
from tinykube.server import rules

CASES = cases()
REAL: dict[str, Any] = json.loads(ANSWERS.read_text())


def test_every_case_has_an_answer() -> None:
    assert set(CASES) == set(REAL)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_a_real_server(name: str) -> None:
    assert json.loads(json.dumps(answer(CASES[name]))) == REAL[name]


@pytest.mark.parametrize("name", [name for name, real in REAL.items() if "object" in real])
def test_what_is_stored_reads_as_itself(name: str) -> None:
    stored, kind = REAL[name]["object"], CASES[name].kind
    assert rules.read(kind, copy.deepcopy(stored), "Strict") == (stored, [])


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.then is not None])
def test_nothing_that_is_stored_is_changed_in_place(case: Case) -> None:
    world = World()
    before = copy.deepcopy([*world.objects.values()])
    stored: list[tuple[Any, Any]] = []
    answer(case, world, stored=stored)
    assert [*world.objects.values()] == before
    assert all(object == was for object, was in stored)
