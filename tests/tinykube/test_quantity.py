"""Quantities read and write as in Kubernetes.

`data/quantities.json` is what k8s.io/apimachinery v0.37.2 made of 400 texts; `data/quantities.go.txt` is the program
that wrote it, with the commands to run it again.
"""

import json
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinykube.quantity import Format, Quantity, QuantityError

ROWS: list[tuple[str, str | None, int | None]] = [
    tuple(row) for row in json.loads((Path(__file__).parents[1] / "data" / "quantities.json").read_text())
]
ACCEPTED = [(text, canonical, whole) for text, canonical, whole in ROWS if canonical is not None]
REFUSED = [text for text, canonical, _ in ROWS if canonical is None]

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]

numbers = st.from_regex(r"[+-]?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True)
exponents = st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True)
texts = st.builds(str.__add__, numbers, st.sampled_from(SUFFIXES) | exponents)
quantities = st.builds(Quantity.parse, texts)


@pytest.mark.parametrize(("text", "canonical", "whole"), ACCEPTED)
def test_text_is_read_and_written_as_kubernetes_does(text: str, canonical: str, whole: int) -> None:
    quantity = Quantity.parse(text)
    assert str(quantity) == canonical
    assert quantity.ceil() == whole


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_kubernetes_refuses_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["", "+", ".", "Gi", "-m", "e3"])
def test_text_without_a_digit_is_refused_though_kubernetes_reads_zero(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["1000E", "1000000E", "-1000E"])
def test_thousand_exa_keep_their_suffix_though_kubernetes_drops_it(text: str) -> None:
    assert str(Quantity.parse(text)) == text


def test_blanks_around_a_quantity_are_trimmed_and_within_it_refused() -> None:
    assert str(Quantity.parse(" 1Gi ")) == "1Gi"
    with pytest.raises(QuantityError):
        Quantity.parse("1 Gi")


@pytest.mark.parametrize("text", ["\u0661", "\uff11", "²", "1Gi\n"])
def test_only_ascii_digits_count(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (8000, "8k"), (1.5, "1500m"), (2.0, "2"), (1e22, "10e21")])
def test_numbers_from_yaml_are_quantities(number: float, text: str) -> None:
    assert str(Quantity.parse(number)) == text


@pytest.mark.parametrize("value", [True, None, float("nan"), float("-inf"), ["1"], {}])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        Quantity.parse(value)


def test_a_refusal_names_the_value_and_what_would_be_right() -> None:
    message = "'16gb' is not a quantity: use a number with an optional suffix such as Mi, Gi, k, M, G"
    with pytest.raises(QuantityError, match=f"^{re.escape(message)}$"):
        Quantity.parse("16gb")


@pytest.mark.parametrize("text", ["1e999999999", "1e-401", "1e" + "9" * 300])
def test_an_exponent_that_would_fill_the_memory_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is out of range: use an exponent from -400 to 400"):
        Quantity.parse(text)


def test_a_text_that_goes_on_forever_is_refused_in_a_short_message() -> None:
    with pytest.raises(QuantityError, match="is too long for a quantity: use at most 400 characters") as error:
        Quantity.parse("9" * 100_000)
    assert len(str(error.value)) < 120


def test_a_quantity_parses_as_itself() -> None:
    memory = Quantity.parse("16Gi")
    assert Quantity.parse(memory) is memory


def test_a_whole_number_comes_out_exact_or_not_at_all() -> None:
    assert Quantity.parse("16Gi").integer() == 16 * 2**30
    assert Quantity.parse("-2000m").integer() == -2
    with pytest.raises(QuantityError, match="'1500m' is not a whole number: use one such as 2"):
        Quantity.parse("1.5").integer()


def test_a_number_is_written_in_the_format_it_is_given() -> None:
    assert str(Quantity.of(8192)) == "8192"
    assert str(Quantity.of(8192, Format.BINARY)) == "8Ki"
    assert str(Quantity.of(8000, Format.EXPONENT)) == "8e3"
    assert repr(Quantity.of(8192, Format.BINARY)) == "Quantity('8Ki')"


def test_the_same_amount_written_differently_is_one_quantity() -> None:
    assert len({Quantity.parse(text) for text in ("1Gi", "1024Mi", "1073741824", "1.073741824G")}) == 1


def test_only_zero_is_false() -> None:
    assert not Quantity.parse("0Gi")
    assert Quantity.parse("1n")


def test_a_sum_keeps_the_format_on_its_left() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1073741824")) == "2Gi"
    assert str(Quantity.parse("1000") + Quantity.parse("1Ki")) == "2024"
    assert str(Quantity.parse("3Gi") - Quantity.parse("1024Mi")) == "2Gi"


def test_less_than_one_has_no_binary_format_to_keep() -> None:
    half = Quantity.parse("0.00048828125Ki")
    assert half.value == Fraction(1, 2)
    assert str(half + Quantity.parse("2047.5")) == "2048"


def test_zero_on_the_left_takes_the_format_on_the_right() -> None:
    zero = Quantity.of(0)
    assert str(zero + Quantity.parse("1Gi")) == "1Gi"
    assert str(zero - Quantity.parse("1Gi")) == "-1Gi"


@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.lt])
def test_a_quantity_and_a_plain_number_do_not_mix(operation: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError):
        operation(Quantity.of(1), 1)


@given(quantities)
def test_canonical_text_reads_back_as_the_same_quantity(quantity: Quantity) -> None:
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@given(quantities, quantities)
def test_order_and_arithmetic_are_those_of_fractions(a: Quantity, b: Quantity) -> None:
    assert (a < b, a == b, a > b) == (a.value < b.value, a.value == b.value, a.value > b.value)
    assert (a + b).value == a.value + b.value
    assert (a - b).value == a.value - b.value
    assert (-a).value == -a.value
    assert a != b or hash(a) == hash(b)


@given(numbers)
def test_a_plain_number_is_kept_to_the_billionth_and_rounded_away_from_zero(number: str) -> None:
    kept, meant = abs(Quantity.parse(number).value), abs(Fraction(number.removesuffix(".")))
    assert meant <= kept < meant + Fraction(1, 10**9)
