"""A program in a container, over a WebSocket: each message begins with the number of the stream that it belongs to.

    0 standard input   1 standard output   2 standard error   3 how it ended   4 the size of the terminal
    255 (only in v5)   the stream that follows has no more to say

How it ended is a Status, as a kubelet writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import msgspec
from aiohttp import WSMsgType, web

from tinykube.server.kubelet import Session
from tinykube.server.store import encode
from tinykube.status import ApiError

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
PROTOCOLS = (V5, V4)

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

MOST_BYTES = 4 << 20
"""Of one message; clients send input in parts of some KiB."""

SETTLING = 0.05
"""Seconds in which clients written in Go hear nothing.

kubectl 1.32 listens before it has made all streams, and drops what comes for one that it does not know yet (1.36 does
not).  On a cluster the way to the container takes longer than that.
"""
_GO = " kubernetes/"
"""Part of the user agent of whatever is made with Kubernetes' own client."""

_Length = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]


class _Size(msgspec.Struct):
    columns: _Length = msgspec.field(default=0, name="Width")
    rows: _Length = msgspec.field(default=0, name="Height")


async def converse(request: web.BaseRequest, session: Session) -> web.WebSocketResponse:
    """Carry what a program says and hears until it has ended or the client has gone."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS, heartbeat=30.0, max_msg_size=MOST_BYTES)
    listening: asyncio.Task[None] | None = None
    speaking: asyncio.Task[None] | None = None
    try:
        await socket.prepare(request)
        settling = SETTLING if _GO in request.headers.get("User-Agent", "") else 0
        listening = asyncio.create_task(_listen(socket, session))
        speaking = asyncio.create_task(_speak(socket, session, settling))
        await asyncio.wait({listening, speaking}, return_when=asyncio.FIRST_COMPLETED)
        if speaking.done():
            await speaking
    except ConnectionError:
        pass  # the client has gone
    finally:
        for task in (listening, speaking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
        await session.close()
        await socket.close()
    return socket


async def _listen(socket: web.WebSocketResponse, session: Session) -> None:
    """Carry input until the client goes.  Only v5 has a message for its end."""
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == STDIN and data:
            await session.write(data)
        elif channel == RESIZE and data:
            with contextlib.suppress(msgspec.DecodeError):
                size = msgspec.json.decode(data, type=_Size)
                await session.resize(size.columns, size.rows)
        elif channel == CLOSE and data[:1] == bytes([STDIN]):
            await session.end_input()


async def _speak(socket: web.WebSocketResponse, session: Session, settling: float) -> None:
    """Carry output, then how it ended."""
    await asyncio.sleep(settling)
    await socket.send_bytes(bytes([STDOUT]))  # an empty message: the connection stands
    try:
        async for stream, data in session.output():
            await socket.send_bytes(bytes([stream]) + data)
        status = _ended(await session.wait())
    except ApiError as error:
        status = encode(error.status())
    await socket.send_bytes(bytes([ERROR]) + status)


def _ended(code: int) -> bytes:
    if code == 0:
        return encode({"metadata": {}, "status": "Success"})
    return encode({
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    })  # fmt: skip
