"""The status of a page that a probe asks a container for.

A container may answer anything, and without an end.  So no more than the head of an answer is read, of a decent size,
and nothing that it says gets into an error.  As for a kubelet, redirects are followed on the same host only: one that
leads elsewhere is the answer itself.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cache
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from subak.local.kubelet.connection import connect

LONGEST_LINE = 1 << 13
MOST_LINES = 128
"""Of the head of an answer."""
MOST_REDIRECTS = 10
MOST_BEFOREHAND = 5
"""Answers that only announce another one (100 to 199), as Go's client takes them."""

_STATUS = re.compile(rb"HTTP/\d\.\d ([1-9]\d\d)(?: .*)?")
_PORTS = {"http": 80, "https": 443}
_AS_IT_IS = "!$%&'()*+,-./:;=?@[]_~"
"""What is not quoted in a path or a query."""


class BadAnswer(Exception):
    """There is no status; the text says why."""


async def status(url: str, headers: Mapping[str, str]) -> int:
    """The status of the page.  Raises BadAnswer, OSError, and ValueError for what cannot be asked."""
    where = urlsplit(url)
    for _ in range(MOST_REDIRECTS):
        code, location = await _ask(where, headers)
        if not location or not 300 <= code < 400:
            return code
        target = urlsplit(urljoin(url, location))
        if target.hostname != where.hostname or target.scheme not in _PORTS:
            return code
        url, where = target.geturl(), target
    raise BadAnswer(f"stopped after {MOST_REDIRECTS} redirects")


async def _ask(where: SplitResult, headers: Mapping[str, str]) -> tuple[int, str]:
    """The status, and where it leads."""
    secure = _unchecked() if where.scheme == "https" else None
    port = where.port or _PORTS[where.scheme]
    reader, writer = await connect(where.hostname or "", port, secure, LONGEST_LINE)
    try:
        writer.write(_question(where, headers))
        for _ in range(MOST_BEFOREHAND + 1):
            code, location = await _head(reader)
            if code == 101 or code >= 200:
                return code, location
        raise BadAnswer("too many answers that only announce another one")
    except asyncio.IncompleteReadError:
        raise BadAnswer("the connection ended before the answer") from None
    finally:
        writer.close()


def _question(where: SplitResult, headers: Mapping[str, str]) -> bytes:
    target = quote(where.path or "/", safe=_AS_IT_IS) + (
        f"?{quote(where.query, safe=_AS_IT_IS)}" if where.query else ""
    )
    lines = [f"GET {target} HTTP/1.1"]
    if "host" not in map(str.lower, headers):
        lines.append(f"Host: {where.netloc}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if any({"\r", "\n", "\0"} & set(line) for line in lines):
        raise ValueError("a header has more than one line")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


async def _head(reader: asyncio.StreamReader) -> tuple[int, str]:
    """The next head of an answer: its status, and where it leads."""
    first, *lines = [line async for line in _lines(reader)] or [b""]
    found = _STATUS.fullmatch(first)
    if found is None:
        raise BadAnswer("malformed HTTP response")
    named = (line.partition(b":") for line in lines)
    location = next((value.strip() for name, _, value in named if name.lower() == b"location"), b"")
    return int(found[1]), location.decode("latin-1")


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines up to an empty one."""
    for _ in range(MOST_LINES):
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            break
        if not (text := line.rstrip(b"\r\n")):
            return
        yield text
    raise BadAnswer(
        f"the head of the answer has more than {MOST_LINES} lines, or longer ones than {LONGEST_LINE} bytes"
    )


@cache
def _unchecked() -> ssl.SSLContext:
    """Certificates are not checked: a probe asks whether the server is alive, not who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
