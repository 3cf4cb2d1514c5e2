"""Values that are text in JSON but mean more: quantities, times and bytes.

Each function gives the canonical text of a value, or raises `BadValue` with the words that Go has for it.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

from tinykube.quantity import Quantity, QuantityError
from tinykube.server.memo import remembered
from tinykube.server.rules.problem import quote

_QUANTITY_WORDS = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "unable to parse quantity's suffix",
)
_QUANTITY_SHAPE = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_MILLI = 10**6
_FINE = ("u", "n")

_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_ELEMENTS = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"),
    ("15", r"\d\d"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)  # fmt: skip
_ZONE = r"Z|[+-]\d\d:\d\d"
_BOUNDS = ("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59)


class BadValue(Exception):
    """The value is not what its field wants; the message is Go's."""


@remembered(8192)
def quantity(value: str | int | float) -> str:
    """The canonical text of a quantity."""
    try:
        return str(Quantity.parse(value))
    except QuantityError:
        text = str(value).strip(" ")
        shaped = _QUANTITY_SHAPE.fullmatch(text) and text.lstrip("+-").replace(".", "").strip("eEinumkKMGTP+-")
        raise BadValue(_QUANTITY_WORDS[1 if shaped else 0]) from None


@remembered(8192)
def nanos(text: str) -> int:
    """The value of a canonical quantity, in billionths."""
    return Quantity.parse(text).nanos


def in_thousandths(amounts: dict[str, str]) -> None:
    """Round amounts up to thousandths: the API server keeps nothing finer of a container's or a node's resources."""
    for name, text in amounts.items():
        if text.endswith(_FINE) or ("e-" in text and nanos(text) % _MILLI):
            found = Quantity.parse(text)
            rounded = -(-abs(found.nanos) // _MILLI) * _MILLI
            amounts[name] = str(Quantity(nanos=rounded if found.nanos > 0 else -rounded, format=found.format))


def sum_of(first: str, second: str) -> str:
    """The sum of two canonical quantities; it looks like the first, unless that is nothing."""
    one, other = Quantity.parse(first), Quantity.parse(second)
    return str(Quantity(nanos=one.nanos + other.nanos, format=(one if one.nanos else other).format))


def less(first: str, second: str) -> str:
    """The difference of two canonical quantities."""
    one, other = Quantity.parse(first), Quantity.parse(second)
    return str(Quantity(nanos=one.nanos - other.nanos, format=(one if one.nanos else other).format))


@remembered(4096)
def time(text: str) -> str | None:
    """A time in UTC, without fractions of a second; nothing for the zero time."""
    if _SECONDS.fullmatch(text):
        _checked(text, "2006-01-02T15:04:05Z07:00")
        return None if text == "0001-01-01T00:00:00Z" else text
    moment = _moment(text, "2006-01-02T15:04:05Z07:00", r"(?:\.\d+)?")
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@remembered(4096)
def micro_time(text: str) -> str | None:
    """A time in UTC with microseconds; nothing for the zero time."""
    moment = _moment(text, "2006-01-02T15:04:05.000000Z07:00", r"\.\d{6}")
    zero = moment == datetime(1, 1, 1, tzinfo=UTC)
    return None if zero else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str, layout: str, fraction: str) -> datetime:
    """The moment that `text` means, which has the parts of `layout`."""
    micros = ".000000" in layout
    rest = text
    parts = []
    for name, pattern in (*_ELEMENTS, (".000000" if micros else "", fraction), ("Z07:00", _ZONE)):
        found = re.match(pattern, rest)
        if found is None:
            raise BadValue(
                f"parsing time {_quoted(text)} as {quote(layout)}: cannot parse {_quoted(rest)} as {quote(name)}"
            )
        parts.append(found[0])
        rest = rest[found.end() :]
    if rest:
        raise BadValue(f"parsing time {_quoted(text)}: extra text: {_quoted(rest)}")
    numbers = _checked(text, layout)
    micro = int(f"{parts[-2][1:7]:0<6}") if parts[-2] else 0
    moment = datetime(*numbers, micro, tzinfo=UTC)
    zone = parts[-1]
    if zone == "Z":
        return moment
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    try:
        return moment - offset if zone[0] == "+" else moment + offset
    except OverflowError:  # before the year 1 or after 9999 in UTC
        raise BadValue(f"parsing time {quote(text)}: year out of range") from None


def _quoted(text: str) -> str:
    """A text as Go's package for times quotes it: byte by byte where it is not plain ASCII."""
    found = ""
    for letter in text:
        if letter < " " or letter > "\x7f":
            found += "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="replace"))
        else:
            found += f"\\{letter}" if letter in '"\\' else letter
    return f'"{found}"'


def _checked(text: str, layout: str) -> tuple[int, int, int, int, int, int]:
    """The numbers of a date that has the right shape."""
    year, month, day, hour, minute, second = (
        int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))
    )
    for (name, low, high), number in zip(_BOUNDS, (month, day, hour, minute, second), strict=True):
        if not low <= number <= high:
            raise BadValue(f"parsing time {quote(text)}: {name} out of range")
    try:
        datetime(max(year, 1), month, day, tzinfo=UTC)
    except ValueError:
        raise BadValue(f"parsing time {quote(text)}: day out of range") from None
    return max(year, 1), month, day, hour, minute, second


_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


@remembered(1024)
def data(text: str) -> str:
    """Bytes in base64, in its canonical form."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except ValueError:
        clean = text.replace("\r", "").replace("\n", "")
        if clean != text:
            return data(clean)
        raise BadValue(f"illegal base64 data at input byte {_bad_byte(text)}") from None


def _bad_byte(text: str) -> int:
    """Where base64 ends to make sense."""
    content = text.rstrip("=")
    for index, letter in enumerate(content):
        if letter not in _ALPHABET:
            return index
    if len(content) == len(text):
        return len(text) - len(text) % 4  # no padding where some is due
    return len(content) if len(content) % 4 < 2 else len(content) + 1 if len(text) % 4 else len(text) - 1
