"""Amounts as Kubernetes writes them: `500m`, `16Gi`, `12e6`.

A quantity is an exact number and a format, the way it prefers to be written. Kubernetes keeps nothing finer than a
billionth and rounds what is finer away from zero, so that a small request stays a request. A quantity here is
thus a whole number of billionths: equal, ordered and hashed by value alone, so that `1Gi == 1024Mi`.

`str` gives the canonical text: a whole number with the largest suffix that leaves no fraction. A binary quantity that
is below 1024, or not whole, is written with a decimal suffix, where it loses nothing. The rules are those of
`k8s.io/apimachinery/pkg/api/resource`, save that

- text without a digit (`Gi`, `+`) is refused, as their grammar has it; their parser reads it as 0;
- a decimal quantity from 10^21 on keeps its suffix, `1000E`; theirs drops it and writes `1`;
- text of more than 400 characters, or with an exponent past 400, is refused: `1e999999999` would fill the memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from reprlib import repr as shortened
from typing import Final, Self

_NANO: Final = 10**9
_LIMIT: Final = 400

# Kubernetes caps what it reads with a binary suffix, and only that, at the largest int64; a sum may be larger.
_MAX_BINARY: Final = (2**63 - 1) * _NANO

_DECIMAL_SUFFIXES: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# What each suffix stands for, in billionths.
_DECIMAL_UNITS: Final = {suffix: 1000**step for step, suffix in enumerate(_DECIMAL_SUFFIXES)}
_BINARY_UNITS: Final = {suffix: 1024**step * _NANO for step, suffix in enumerate(_BINARY_SUFFIXES) if suffix}

# `1E` is exa but `1E3` has an exponent: the suffix is tried first, and given up where digits follow it.
_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]+))"
)


class QuantityError(ValueError):
    """A value that is not a quantity, or not the kind of quantity that was asked for."""


class Format(StrEnum):
    """How a quantity prefers to be written, by the name Kubernetes has for it."""

    BINARY = "BinarySI"
    """`16Gi`: powers of 1024."""

    DECIMAL = "DecimalSI"
    """`16G`, `500m`: powers of 1000."""

    EXPONENT = "DecimalExponent"
    """`16e9`: powers of 1000, written as an exponent."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True, repr=False)
class Quantity:
    """An exact amount, in billionths; made by `parse` or `of`, and compared by value whatever its format."""

    nanos: int
    format: Format = field(default=Format.DECIMAL, compare=False)

    @classmethod
    def parse(cls, text: str | int | float | Quantity) -> Quantity:
        """What a manifest means by `text`, which YAML may have made a number; a float counts as its shortest text."""
        match text:
            case str():
                return _read(text)
            case Quantity():
                return text
            case int() if not isinstance(text, bool):
                return cls.of(text)
            case float():
                return _read(float.__repr__(text))
        raise _not_a_quantity(text)

    @classmethod
    def of(cls, value: int, format: Format = Format.DECIMAL) -> Self:
        """The whole number `value`."""
        return cls(nanos=value * _NANO, format=format)

    @property
    def value(self) -> Fraction:
        """The exact value."""
        return Fraction(self.nanos, _NANO)

    def integer(self) -> int:
        """The value, which must be whole; Kubernetes counts devices in whole numbers only."""
        value, rest = divmod(self.nanos, _NANO)
        if rest:
            raise QuantityError(f"'{self}' is not a whole number: use one such as {self.ceil()}")
        return value

    def ceil(self) -> int:
        """The value rounded to a whole number away from zero, as Kubernetes promises of `Value()`."""
        return self.nanos // _NANO if self.nanos < 0 else -(-self.nanos // _NANO)

    def __str__(self) -> str:
        match self.format:
            case Format.EXPONENT:
                return _with_exponent(self.nanos)
            case Format.BINARY if abs(self.nanos) >= 1024 * _NANO and self.nanos % _NANO == 0:
                return _with_suffix(self.nanos // _NANO, 1024, _BINARY_SUFFIXES)
            case _:
                return _with_suffix(self.nanos, 1000, _DECIMAL_SUFFIXES)

    def __repr__(self) -> str:
        return f"Quantity('{self}')"

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, in the format of the left operand unless that is zero."""
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(nanos=self.nanos + other.nanos, format=self.format if self else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference, in the format of the left operand unless that is zero."""
        return self + -other

    def __neg__(self) -> Quantity:
        return Quantity(nanos=-self.nanos, format=self.format)


@lru_cache(maxsize=8192)  # A cluster's pods repeat the same few texts.
def _read(text: str) -> Quantity:
    if len(text) > _LIMIT:
        raise QuantityError(f"{shortened(text)} is too long for a quantity: use at most {_LIMIT} characters")
    if text.isdigit() and text.isascii():
        return Quantity.of(int(text))
    # The API server trims blanks before it parses.
    parts = _PATTERN.fullmatch(text.strip(" "))
    if parts is None:
        raise _not_a_quantity(text)
    sign, whole, fraction, suffix, exponent = parts.groups(default="")
    if exponent and abs(int(exponent)) > _LIMIT:
        raise QuantityError(f"{shortened(text)} is out of range: use an exponent from -{_LIMIT} to {_LIMIT}")
    nanos, format = _magnitude(int(whole + fraction), len(fraction), suffix, exponent)
    return Quantity(nanos=-nanos if sign == "-" else nanos, format=format)


def _magnitude(digits: int, places: int, suffix: str, exponent: str) -> tuple[int, Format]:
    """The billionths in `digits` with `places` of them after the point, and the format the suffix asks for."""
    if exponent:
        return _shifted(digits * _NANO, int(exponent) - places), Format.EXPONENT
    if suffix in _DECIMAL_UNITS:
        return _shifted(digits * _DECIMAL_UNITS[suffix], -places), Format.DECIMAL
    nanos = min(_shifted(digits * _BINARY_UNITS[suffix], -places), _MAX_BINARY)
    # Kubernetes forgets the binary suffix of what is less than one.
    return nanos, Format.DECIMAL if 0 < nanos < _NANO else Format.BINARY


def _shifted(number: int, power: int) -> int:
    """`number` times ten to `power`, rounded up."""
    factor: int = 10 ** abs(power)
    return number * factor if power >= 0 else -(-number // factor)


def _with_suffix(count: int, step: int, suffixes: tuple[str, ...]) -> str:
    """`count` of the first suffix's unit, in the largest unit that leaves no fraction."""
    if count == 0:
        return "0"
    for suffix in suffixes[:-1]:
        if count % step:
            return f"{count}{suffix}"
        count //= step
    return f"{count}{suffixes[-1]}"


def _with_exponent(nanos: int) -> str:
    """`nanos` billionths as a whole number and the largest exponent, a multiple of three, that leaves no fraction."""
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0:
        nanos, exponent = nanos // 1000, exponent + 3
    return f"{nanos}e{exponent}" if exponent else str(nanos)


def _not_a_quantity(text: object) -> QuantityError:
    return QuantityError(
        f"{shortened(text)} is not a quantity: use a number with an optional suffix such as Mi, Gi, k, M, G"
    )
