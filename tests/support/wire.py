"""A server on real sockets, and connections on which a test writes what it likes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.talk import Talk
from tinykube.door import Bounds
from tinykube.server.http import Listener
from tinykube.server.server import Server
from tinykube.server.store import Store
from tinykube.server.tls import identity

WIDE = Bounds(connections=64, strangers=16)
DEADLINE = 10.0
WHO = identity()
TOKEN = f"Authorization: Bearer {WHO.token}\r\n"


class Wire:
    """A connection on which a test writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, path: str = "/version", more: str = TOKEN, method: str = "GET") -> int:
        """The code of a request without a body; the answer is read."""
        self.writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
        return await self.answer()

    async def answer(self) -> int:
        """The code of the next answer, which is read to its end."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), DEADLINE)).lower()
        if b"content-length: " in head:
            await self.reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        return int(head.split()[1])

    async def rest(self) -> bytes:
        """All that comes until the server hangs up."""
        try:
            return await asyncio.wait_for(self.reader.read(), DEADLINE)
        except ConnectionError:
            return b""


class House:
    """A server that listens within bounds."""

    def __init__(self, endpoint: Listener, server: Server) -> None:
        self.endpoint = endpoint
        self.talk = Talk(server)
        self._wires: list[Wire] = []

    async def wire(self, buffer: int = 0) -> Wire:
        """A new connection; `buffer` bounds what the kernel takes in for a reader that does not read."""
        trust = ssl.create_default_context(cadata=WHO.authority)
        near = socket.socket()
        if buffer:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        near.connect(("127.0.0.1", self.endpoint.port))
        streams = await asyncio.open_connection(sock=near, ssl=trust, server_hostname="127.0.0.1", limit=1 << 22)
        self._wires.append(Wire(*streams))
        return self._wires[-1]

    def inside(self) -> int:
        """How many connections the server has."""
        assert self.endpoint._door is not None
        return len(self.endpoint._door._inside)

    async def close(self) -> None:
        for wire in self._wires:
            wire.writer.transport.abort()
        await self.endpoint.stop()


@asynccontextmanager
async def house(bounds: Bounds = WIDE, **options: Any) -> AsyncIterator[House]:
    server = Server(Store(), **options)
    made = House(Listener(server, WHO, bounds), server)
    await made.endpoint.start()
    try:
        yield made
    finally:
        await made.close()
