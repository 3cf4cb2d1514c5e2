"""Programs run inside containers, over a WebSocket.

Each message begins with the number of its channel: 0 input, 1 output, 2 error output, 3 the outcome, 4 the size of the
terminal.  Version 5 of the protocol can also say that the input has ended; version 4 cannot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import msgspec

from tinykube.codec import BadAnswer, decode
from tinykube.http import HttpTransport, UpgradeRefused
from tinykube.resource import PODS
from tinykube.status import ApiError

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, OUTCOME, SIZE, END = 0, 1, 2, 3, 4, 255


class ExecSession:
    """A program that runs inside a container."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._outcome: dict[str, Any] | None = None

    async def write(self, data: bytes) -> None:
        """Give it input."""
        await self._socket.send_bytes(bytes([STDIN]) + data)

    async def end_input(self) -> None:
        """No more input comes.  Version 4 of the protocol has no message for that."""
        if self._socket.protocol == V5:
            await self._socket.send_bytes(bytes([END, STDIN]))

    async def resize(self, columns: int, rows: int) -> None:
        """Its terminal has another size now."""
        await self._socket.send_bytes(bytes([SIZE]) + msgspec.json.encode({"Width": columns, "Height": rows}))

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """What it prints, until it ends: 1 for standard output, 2 for standard error."""
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel in (STDOUT, STDERR):
                if data:  # each channel begins with an empty message
                    yield channel, data
            elif channel == OUTCOME and data:
                self._outcome = decode(dict[str, Any], data)

    def exit_code(self) -> int:
        """How it ended, once there is no more output.  Raises ApiError if it could not be run."""
        if self._outcome is None:
            raise ConnectionError("the connection broke before the program ended")
        if self._outcome.get("status") == "Success":
            return 0
        for cause in (self._outcome.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        raise ApiError.from_status(self._outcome)

    async def close(self) -> None:
        """Nobody watches any more."""
        await self._socket.close()


async def execute(
    transport: HttpTransport,
    name: str,
    namespace: str,
    command: Sequence[str],
    *,
    container: str = "",
    stdin: bool = False,
    tty: bool = False,
) -> ExecSession:
    """Start a program in a running container.  Raises ApiError if the server refuses."""
    path = PODS.path(namespace, name, "exec")
    query = [("command", word) for word in command]
    if container:
        query.append(("container", container))
    query += [("stdin", _flag(stdin)), ("stdout", "true"), ("stderr", _flag(not tty)), ("tty", _flag(tty))]
    try:
        return ExecSession(await transport.open_websocket(path, query, (V5, V4)))
    except UpgradeRefused as refused:
        raise _refusal(refused) from None


def _refusal(refused: UpgradeRefused) -> ApiError:
    """Why the server refused, in its own words if there are any."""
    if refused.status in (414, 431):
        return ApiError(refused.status, "", f"{refused.status}: the command is longer than the API server takes")
    try:
        return ApiError.from_status(decode(dict[str, Any], refused.body), refused.status)
    except BadAnswer:
        return ApiError(refused.status, "", str(refused))


def _flag(value: bool) -> str:
    return "true" if value else "false"
