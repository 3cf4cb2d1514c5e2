"""Protocol buffers by hand: the few kinds of fields that NRI's messages are made of.

A message is a row of fields, each with a number.  Fields that nobody asks for are skipped, so that newer runtimes are
understood.  Bytes that are no message raise Malformed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10
_MASK = (1 << 64) - 1


class Malformed(ValueError):
    """Bytes from the runtime that cannot be read; the text says why."""


def varint(value: int) -> bytes:
    """A number; negative ones are written in two's complement, as protocol buffers want it."""
    value &= _MASK
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def number(field: int, value: int) -> bytes:
    """A number or a truth value; 0 is not written."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def data(field: int, value: bytes) -> bytes:
    """Bytes, or a message inside this one; written even if it is empty."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A text; an empty one is not written."""
    return data(field, value.encode()) if value else b""


def mapping(field: int, values: Mapping[str, str]) -> bytes:
    """A map of texts: one message of key and value for each entry."""
    return b"".join(data(field, text(1, key) + text(2, value)) for key, value in values.items())


class Fields:
    """The fields of one message."""

    def __init__(self, content: bytes) -> None:
        self._found: dict[int, list[int | bytes]] = {}
        for field, value in _fields(content):
            self._found.setdefault(field, []).append(value)

    def number(self, field: int) -> int:
        """A number; 0 if it is not there.  If it is there several times the last one counts."""
        values = self._found.get(field)
        if not values:
            return 0
        value = values[-1]
        if isinstance(value, bytes):
            raise Malformed(f"field {field}: bytes, a number was expected")
        return value if value < 1 << 63 else value - (1 << 64)

    def flag(self, field: int) -> bool:
        """A truth value."""
        return bool(self.number(field))

    def data(self, field: int) -> bytes:
        """Bytes; empty if they are not there."""
        values = self.all(field)
        return values[-1] if values else b""

    def all(self, field: int) -> list[bytes]:
        """All bytes or messages under a number."""
        values = self._found.get(field, [])
        found = [value for value in values if isinstance(value, bytes)]
        if len(found) != len(values):
            raise Malformed(f"field {field}: a number, bytes were expected")
        return found

    def message(self, field: int) -> Fields:
        """The message inside this one; without fields if it is not there."""
        # Parts of one message may come apart; protocol buffers put them together again.
        return Fields(b"".join(self.all(field)))

    def messages(self, field: int) -> list[Fields]:
        """All messages under a number."""
        return [Fields(each) for each in self.all(field)]

    def text(self, field: int) -> str:
        """A text; empty if it is not there."""
        return _decoded(field, self.data(field))

    def texts(self, field: int) -> tuple[str, ...]:
        """All texts under a number."""
        return tuple(_decoded(field, each) for each in self.all(field))

    def mapping(self, field: int) -> dict[str, str]:
        """A map of texts."""
        return {each.text(1): each.text(2) for each in self.messages(field)}


def _decoded(field: int, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"field {field}: not a text: {error}") from None


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        field, kind = key >> 3, key & 7
        if not field:
            raise Malformed("a field has the number 0")
        if kind == VARINT:
            value, at = _varint(content, at)
            yield field, value
        elif kind == BYTES:
            length, at = _varint(content, at)
            if length > len(content) - at:
                raise Malformed(f"field {field}: {length} bytes announced, {len(content) - at} left")
            yield field, content[at : at + length]
            at += length
        elif kind in _SIZES:  # nothing that we read is of a fixed size
            at += _SIZES[kind]
            if at > len(content):
                raise Malformed(f"field {field}: cut short")
        else:
            raise Malformed(f"field {field}: of kind {kind}, which is not used any more")


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LONGEST_VARINT):
        if at >= len(content):
            raise Malformed("a number is cut short")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & _MASK, at
    raise Malformed("a number is longer than 64 bits")
