"""Which product code answers which function of the case files."""

from __future__ import annotations

from tests.cases import hami, koordinator, volcano
from tests.cases.runner import Answer

ANSWERS: dict[str, Answer] = {**hami.ANSWERS, **volcano.ANSWERS, **koordinator.ANSWERS}
