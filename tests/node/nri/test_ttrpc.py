"""Remote calls: the bytes on the wire, whole or in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.node.nri.messages import PLUGIN_SERVICE, RUNTIME_SERVICE, registration
from subak.node.nri.ttrpc import LARGEST, REQUEST, RESPONSE, Assembler, Failure, Message, Request, Response
from subak.node.nri.wire import Malformed

MESSAGES = st.lists(st.builds(Message, st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=200)))


@given(MESSAGES, st.data())
def test_messages_arrive_whole_however_they_were_cut(sent: list[Message], data: st.DataObject) -> None:
    content, assembler, got = b"".join(each.encode() for each in sent), Assembler(), list[Message]()
    while content:
        cut = data.draw(st.integers(1, len(content)))
        got += assembler.feed(content[:cut])
        content = content[cut:]
    assert got == sent


def test_a_message_larger_than_allowed_is_refused_before_it_is_read() -> None:
    head = (LARGEST + 1).to_bytes(4) + bytes([0, 0, 0, 1, 1, 0])
    with pytest.raises(Malformed, match="at most"):
        list(Assembler().feed(head))


def test_a_registration_is_what_runtimes_expect() -> None:
    request = Request(RUNTIME_SERVICE, "RegisterPlugin", registration("gpushare", "10"))
    assert Message(1, REQUEST, request.encode()).encode().hex() == (
        "0000003e0000000101000a1c6e72692e706b672e6170692e7631616c706861312e52756e74696d65120e5265676973746572506c756769"
        "6e1a0e0a08677075736861726512023130"
    )


def test_failures_are_what_runtimes_expect() -> None:
    boom = Response(failure=Failure(2, "boom"))
    assert Message(5, RESPONSE, boom.encode()).encode().hex() == "0000000a0000000502000a0808021204626f6f6d"
    unknown = Response(failure=Failure(12, "not implemented"))
    assert Message(7, RESPONSE, unknown.encode()).encode().hex() == (
        "000000150000000702000a13080c120f6e6f7420696d706c656d656e746564"
    )
    read = Response.decode(boom.encode()).failure
    assert read is not None
    assert (read.code, read.message) == (2, "boom")


def test_requests_and_responses_read_back() -> None:
    request = Request(PLUGIN_SERVICE, "Configure", b"\x12\x01x")
    assert Request.decode(request.encode()) == request
    assert Response.decode(Response(b"abc").encode()) == Response(b"abc")
    assert Response.decode(b"") == Response()
