"""What an API server answers, beyond one object: bodies without an end, lines of a watch, refusals."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from tinykube.codec import Bookmark, Codec, T, Unreadable, WatchEvent
from tinykube.status import ApiError
from tinykube.transport import Response


async def chunks(response: Response) -> AsyncGenerator[bytes, None]:
    """The body in pieces, as they come."""
    if response.stream is None:
        yield response.body
        return
    try:
        async for chunk in response.stream:
            yield chunk
    finally:
        await _close(response)


async def events(reader: Codec[T], response: Response) -> AsyncGenerator[WatchEvent[T] | Bookmark | Unreadable, None]:
    """The lines of a watch.  What is left when a connection is cut in the middle of a line is no event."""
    rest = b""
    async with aclosing(chunks(response)) as pieces:
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line:
                    try:
                        yield reader.event(line)
                    except Unreadable as problem:
                        yield problem


async def refused(response: Response) -> ApiError:
    """The error of a refused request; one that comes without a Status is from something in between."""
    body = response.body
    if response.stream is not None:
        body = b"".join([chunk async for chunk in response.stream])
    try:
        status = msgspec.json.decode(body, type=dict[str, Any])
        if status.get("kind") == "Status":
            return ApiError.from_status(status, response.status)
    except msgspec.DecodeError:
        pass
    text = body[:500].decode(errors="replace").strip()
    return ApiError(response.status, "", f"the server answered {response.status}: {text or 'without a reason'}")


async def _close(response: Response) -> None:
    close = getattr(response.stream, "aclose", None)
    if close is not None:
        await close()
