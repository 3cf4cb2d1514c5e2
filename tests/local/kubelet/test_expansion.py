from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.expansion import MissingValues, expand, expand_path

VARIABLES = {"A": "1", "B": "$(A)", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(B)", "$(A)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(A", "$(A"),
        ("$A ${A} $", "$A ${A} $"),
        ("$($(A))", "$($(A))"),
        ("$()", "$()"),
        ("$(EMPTY)", ""),
        ("$\n$(A)", "$\n1"),
    ],
)
def test_references_are_replaced_as_kubelets_do(text: str, expected: str) -> None:
    assert expand(text, VARIABLES) == expected


def test_the_first_who_knows_a_name_gives_its_value() -> None:
    assert expand("$(A) $(S)", VARIABLES, {"A": "2", "S": "3"}) == "1 3"


@given(st.text(alphabet="$()AB x"))
def test_text_survives_if_its_dollars_are_doubled(text: str) -> None:
    assert expand(text.replace("$", "$$"), VARIABLES) == text


def test_a_path_needs_all_of_its_variables() -> None:
    assert expand_path("logs/$(A)", VARIABLES) == "logs/1"
    with pytest.raises(MissingValues, match="missing value for EMPTY, NOPE"):
        expand_path("$(NOPE)/$(EMPTY)", VARIABLES)
