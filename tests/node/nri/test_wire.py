"""Protocol buffers by hand: what is written reads back, and no bytes are too odd."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.nri import wire
from subak.node.nri.wire import Fields, Malformed

NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(NUMBERS, TEXTS, st.binary(), st.dictionaries(TEXTS, TEXTS))
def test_what_is_written_reads_back(number: int, text: str, data: bytes, mapping: dict[str, str]) -> None:
    content = wire.number(1, number) + wire.text(2, text) + wire.data(3, data) + wire.mapping(2000, mapping)
    fields = Fields(content)
    assert (fields.number(1), fields.text(2), fields.data(3)) == (number, text, data)
    assert fields.mapping(2000) == mapping


@given(st.binary())
def test_any_bytes_are_a_message_or_malformed(content: bytes) -> None:
    try:
        fields = Fields(content)
        for read in (fields.number, fields.text, fields.texts, fields.mapping, fields.messages, fields.message):
            read(1)
    except Malformed:
        pass


def test_fields_that_nobody_knows_are_skipped() -> None:
    strange = bytes.fromhex("09" + "00" * 8 + "15" + "00" * 4) + wire.data(7, b"new") + wire.number(8, 1)
    assert Fields(strange + wire.text(2, "known")).text(2) == "known"


def test_of_a_repeated_field_the_last_counts_and_parts_of_a_message_are_put_together() -> None:
    fields = Fields(wire.number(1, 1) + wire.number(1, 2) + wire.data(3, wire.text(1, "a")) + wire.data(3, b"\x10\x05"))
    assert fields.number(1) == 2
    assert (fields.message(3).text(1), fields.message(3).number(2)) == ("a", 5)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("0a05ff", "5 bytes announced, 1 left"),
        ("08", "cut short"),
        ("08" + "ff" * 10, "longer than 64 bits"),
        ("0b", "of kind 3"),
        ("0900", "cut short"),
        ("0001", "the number 0"),
    ],
)
def test_what_is_no_message_is_named(content: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        Fields(bytes.fromhex(content))


def test_a_number_is_no_text_and_a_text_no_number() -> None:
    with pytest.raises(Malformed, match="bytes were expected"):
        Fields(wire.number(1, 5)).text(1)
    with pytest.raises(Malformed, match="a number was expected"):
        Fields(wire.text(1, "x")).number(1)
    with pytest.raises(Malformed, match="not a text"):
        Fields(wire.data(1, b"\xff")).text(1)
