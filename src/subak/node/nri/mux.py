"""The mux: several connections on one socket.

    frame = number of the connection (4 bytes), length (4 bytes), that many bytes; numbers have the high byte first

A connection is a stream of bytes: what is cut into frames has no meaning.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from subak.node.nri.wire import Malformed

PLUGIN, RUNTIME = 1, 2
"""The connections: on the first the runtime asks and we answer, on the second it is the other way round."""

LARGEST_SENT = 4096
"""The runtime reads into a buffer of this size, and hangs up on a larger frame."""

LARGEST_READ = 1 << 24
"""More than any runtime sends at once; a larger frame is no frame."""

_HEADER = struct.Struct(">II")


class Mux:
    """The frames of one socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> tuple[int, bytes] | None:
        """The next frame: connection and bytes; None at the end.  Raises Malformed, OSError."""
        try:
            connection, length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
            if length > LARGEST_READ:
                raise Malformed(f"a frame of {length:,} bytes; at most {LARGEST_READ:,} are read")
            return connection, await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return None

    async def send(self, connection: int, content: bytes) -> None:
        """Send bytes on a connection.  Raises OSError."""
        # All frames are queued before anything else runs: those of two messages on one connection must not mix.
        for start in range(0, len(content), LARGEST_SENT):
            part = content[start : start + LARGEST_SENT]
            self._writer.write(_HEADER.pack(connection, len(part)) + part)
        await self._writer.drain()

    async def close(self) -> None:
        """Hang up at once, also if the other side reads no more."""
        self._writer.transport.abort()
        with suppress(OSError):  # it is closed all the same
            await self._writer.wait_closed()
