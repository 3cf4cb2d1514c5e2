"""Any bytes on the wire: an answer below 500 or none, nothing in the log, and the next client is served."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import examples
from tests.support.junk import nothing_logged
from tests.support.talk import CONFIG_MAPS
from tests.support.wire import TOKEN, Wire, house

WORDS = [
    *(b"GET ", b"POST ", b"PATCH ", b"get ", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    *(b"/version", b"/api/v1/pods", CONFIG_MAPS.encode(), b"http://x/", b"*", b"?watch=1", b"?limit=%ff", b"/%00"),
    *(b"/../", b"//", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/9.9", b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\x00", b" "),
    *(b"\t", b":", b"Host: x\r\n", TOKEN.encode(), b"Authorization: ", b"Content-Length: 5\r\n"),
    *(b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Transfer-Encoding: gzip, chunked\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"ffffffffff\r\n", b"{}", b"hello"),
    *(b"Expect: 100-continue\r\n", b"Connection: Upgrade\r\n", b"Connection: close\r\n", b"Upgrade: websocket\r\n"),
    *(b"Upgrade: SPDY/3.1\r\n", b"Content-Encoding: gzip\r\n", b"Content-Type: application/yaml\r\n"),
    *(b"Accept: \xff\xfe\r\n", b"Cookie: a=\x80\r\n", b"Sec-WebSocket-Key: x\r\n", b"Sec-WebSocket-Version: 13\r\n"),
    *(b"User-Agent: \xff\r\n", b"X: " + b"y" * 9_000 + b"\r\n"),
]
GOOD = f"GET /version HTTP/1.1\r\nHost: x\r\n{TOKEN}".encode()


@examples(15, ci=300)
@given(
    st.lists(st.lists(st.sampled_from(WORDS) | st.binary(max_size=8), max_size=8).map(b"".join), max_size=3),
    st.booleans(),
)
async def test_bytes_on_the_wire(said: list[bytes], begun: bool) -> None:
    with nothing_logged():
        async with house() as served:
            wire = await served.wire()
            for part in [GOOD, *said] if begun else said:
                wire.writer.write(part)
                await asyncio.sleep(0)
            assert await (await served.wire()).ask() == 200
            wire.writer.write_eof() if wire.writer.can_write_eof() else wire.writer.write(b"\r\n\r\n")
            heard = await first_words(wire)
            assert heard == b"" or heard[9:10] in (b"1", b"2", b"3", b"4"), heard


async def first_words(wire: Wire) -> bytes:
    """What the server says at once, if anything."""
    try:
        async with asyncio.timeout(0.02):
            return await wire.reader.read(20)
    except (TimeoutError, ConnectionError):
        return b""
