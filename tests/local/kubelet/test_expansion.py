from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.local.kubelet.expansion import LONGEST, MOST, MissingValues, Room, TooLong, expand, expand_path

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
        ("$(A)$$$(B $$", "1$$(B $"),
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


def test_a_megabyte_of_beginnings_is_read_in_no_time() -> None:
    """Each of them was looked for to the end, which would take an hour."""
    text = "$(" * (1 << 19)
    assert expand(text, VARIABLES) == expand_path(text, VARIABLES) == text


def test_values_that_grow_by_each_other_have_an_end() -> None:
    longest = "x" * LONGEST
    assert expand("$(A)", {"A": longest}) == longest
    with pytest.raises(TooLong, match="becomes longer than 128 KiB"):
        expand("$(A)$(B)", {"A": longest, "B": "x"})


def test_so_has_what_a_program_is_given_in_all() -> None:
    room = Room()
    room.take("x" * MOST)
    with pytest.raises(TooLong, match="longer than 6 MiB"):
        room.take("x")
