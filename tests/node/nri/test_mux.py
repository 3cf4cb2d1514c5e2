"""Several connections on one socket: frames of any size come in, and small ones go out."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.nri.mux import LARGEST_READ, LARGEST_SENT, PLUGIN, RUNTIME, Mux
from subak.node.nri.wire import Malformed


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Mux, Mux]]:
    """The two ends of a socket."""
    ends = [Mux(*await asyncio.open_unix_connection(sock=each)) for each in socket.socketpair()]
    try:
        yield ends[0], ends[1]
    finally:
        for each in ends:
            await each.close()


@given(st.lists(st.tuples(st.sampled_from([PLUGIN, RUNTIME, 77]), st.binary(max_size=3 * LARGEST_SENT)), max_size=5))
def test_what_is_sent_arrives_on_its_connection_in_frames_that_a_runtime_can_read(
    sent: list[tuple[int, bytes]],
) -> None:
    async def story() -> None:
        got: dict[int, bytes] = {}
        async with pair() as (here, there):
            for connection, content in sent:
                await here.send(connection, content)
            await here.close()
            while (frame := await there.read()) is not None:
                assert len(frame[1]) <= LARGEST_SENT
                got[frame[0]] = got.get(frame[0], b"") + frame[1]
        expected: dict[int, bytes] = {}
        for connection, content in sent:
            if content:
                expected[connection] = expected.get(connection, b"") + content
        assert got == expected

    asyncio.run(story())


async def test_a_large_frame_is_read_and_an_absurd_one_is_not() -> None:
    ours, theirs = socket.socketpair()
    reader = Mux(*await asyncio.open_unix_connection(sock=ours))
    _, writer = await asyncio.open_unix_connection(sock=theirs)
    writer.write(struct.pack(">II", 1, 1 << 20) + bytes(1 << 20))
    frame = await reader.read()
    assert frame is not None
    assert len(frame[1]) == 1 << 20
    writer.write(struct.pack(">II", 1, LARGEST_READ + 1))
    with pytest.raises(Malformed, match="at most"):
        await reader.read()
    await reader.close()
    writer.close()


async def test_a_frame_that_is_cut_short_is_the_end() -> None:
    ours, theirs = socket.socketpair()
    reader = Mux(*await asyncio.open_unix_connection(sock=ours))
    theirs.sendall(struct.pack(">II", 1, 10) + b"abc")
    theirs.close()
    assert await reader.read() is None
    await reader.close()
