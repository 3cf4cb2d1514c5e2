"""ttrpc: containerd's remote calls, as small as they can be.

    message = length of the data (4 bytes), number of the call (4 bytes), kind (1 byte), flags (1 byte), data

The caller numbers its calls with odd numbers; the response repeats the number.  Streams of data are not used by NRI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from subak.node.nri import wire
from subak.node.nri.wire import Fields, Malformed

REQUEST, RESPONSE = 1, 2
LARGEST = 4 << 20
"""The largest message that the protocol knows."""

UNKNOWN, INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED, INTERNAL = 2, 3, 9, 12, 13
"""Codes of failures; they are gRPC's."""

_HEADER = struct.Struct(">IIBB")


class Failure(Exception):
    """A call that failed, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response as it travels."""

    stream: int
    kind: int
    data: bytes = b""

    def encode(self) -> bytes:
        """The bytes."""
        return _HEADER.pack(len(self.data), self.stream, self.kind, 0) + self.data


class Assembler:
    """Puts the messages of one connection together again."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, content: bytes) -> Iterator[Message]:
        """The messages that are complete with these bytes.  Raises Malformed."""
        pending = self._pending
        pending += content
        while len(pending) >= _HEADER.size:
            length, stream, kind, _ = _HEADER.unpack_from(pending)
            if length > LARGEST:
                raise Malformed(f"a message of {length:,} bytes; at most {LARGEST:,} are allowed")
            end = _HEADER.size + length
            if len(pending) < end:
                return
            data = bytes(pending[_HEADER.size : end])
            del pending[:end]
            yield Message(stream, kind, data)


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a method."""

    service: str
    method: str
    payload: bytes = b""

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """The request that these bytes are.  Raises Malformed."""
        fields = Fields(data)
        return cls(fields.text(1), fields.text(2), fields.data(3))

    def encode(self) -> bytes:
        """The bytes."""
        return wire.text(1, self.service) + wire.text(2, self.method) + _payload(3, self.payload)


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a call: what it gives, or why it failed."""

    payload: bytes = b""
    failure: Failure | None = None

    @classmethod
    def decode(cls, data: bytes) -> Response:
        """The response that these bytes are.  Raises Malformed."""
        fields = Fields(data)
        status = fields.message(1)
        code = status.number(1)
        return cls(fields.data(2), Failure(code, status.text(2)) if code else None)

    def encode(self) -> bytes:
        """The bytes."""
        if self.failure is None:
            return _payload(2, self.payload)
        status = wire.number(1, self.failure.code) + wire.text(2, self.failure.message)
        return wire.data(1, status)


def _payload(field: int, payload: bytes) -> bytes:
    return wire.data(field, payload) if payload else b""
