"""The door of a server: how many connections it lets in, and for how long one may say nothing.

    listening socket ── accept ──> TLS ──> Visitor ──> the server's own protocol

Everybody is a stranger until the server says otherwise, which is when a visitor has shown who it is.  There are few
places for strangers and little time: whoever comes to a full house takes the place of the stranger who came first, once
that one has had time to speak.  Until then he waits at the door.

asyncio's own servers accept without bound.  When descriptors run out they try again a thousand times at once, and
log each of them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aiohttp import web

from tinykube import descriptors

HEADER_BYTES = (1 << 20) + 4096
"""Of a request, before it is handled; Go's servers allow so many."""
BACKLOG = 1024
GRACE = 0.25
"""Seconds that every stranger has, however many others come."""
PAUSE = 0.5
"""Seconds after which a door that could let nobody in tries again."""
QUIET = 60.0
"""Seconds between two lines of the log about a lack of descriptors."""
GOODBYE = 0.5
"""Seconds in which a client that sent too much can read why; Go's servers wait as long."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Connection: close\r\n\r\n431 Request Header Fields Too Large"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections at once, of them how many strangers, and how much these may have sent together.

    A stranger has `stranger_seconds` from the first packet on, a reader that takes nothing of an answer
    `reader_seconds`.
    """

    connections: int
    strangers: int
    stranger_bytes: int = 16 << 20
    stranger_seconds: float = 10.0
    reader_seconds: float = 60.0
    shutdown_seconds: float = 5.0

    @classmethod
    def of_this_process(cls, most: int = 4096, strangers: int = 512) -> Bounds:
        """At most these, and no more than half of the descriptors that this process may have."""
        connections = min(most, descriptors.limit() // 2)
        return cls(connections, min(strangers, connections // 2))


class Visitor(asyncio.Protocol):
    """A connection.  It passes everything on to the server's protocol, and ends what goes on for too long."""

    def __init__(self, door: Door, protocol: asyncio.Protocol, now: float) -> None:
        self.since = now
        self.known = False
        self.requests = 0
        self.pending = 0
        self.patient = False
        self.welcome: asyncio.Task[None] | None = None
        self._door = door
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._over = False

    @contextmanager
    def request(self) -> Iterator[None]:
        """While the server handles a request."""
        self._door.heard(self, -self.pending)
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            self._door.rested(self)

    @contextmanager
    def long(self) -> Iterator[None]:
        """While a person may look at an answer for as long as he likes."""
        self.patient = True
        self._quiet()
        try:
            yield
        finally:
            self.patient = False

    def introduce(self) -> None:
        """It is known from now on."""
        if not self.known:
            self.known = True
            self._door.introduced(self)

    def end(self) -> None:
        """Hear no more, and hang up when there was time to read the answer."""
        self._over = True
        if self._transport is not None:
            asyncio.get_running_loop().call_later(GOODBYE, self._transport.close)

    def turn_away(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.welcome is not None:
            self.welcome.cancel()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._door.entered(transport, self)
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        if not self.requests:
            self._door.heard(self, len(data))
            if self.pending > HEADER_BYTES:
                assert self._transport is not None
                self._transport.write(_TOO_LARGE)
                self.end()
                return
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()
        if not self.patient:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(self._door.bounds.reader_seconds, self.turn_away)

    def resume_writing(self) -> None:
        self._quiet()
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._quiet()
        assert self._transport is not None
        self._door.left(self, self._transport)
        self._protocol.connection_lost(error)

    def _quiet(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class Door:
    """Listens, and hands connections to the protocols that `server` makes."""

    def __init__(
        self, server: Callable[[], asyncio.Protocol], bounds: Bounds, tls: ssl.SSLContext | None = None
    ) -> None:
        self.bounds = bounds
        self.port = 0
        self._server = server
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._strangers: dict[Visitor, None] = {}
        self._known: dict[Visitor, None] = {}  # who has rested longest comes first
        self._inside: dict[asyncio.BaseTransport, Visitor] = {}
        self._stranger_bytes = 0
        self._clock: asyncio.TimerHandle | None = None
        self._told = -QUIET

    async def open(self, host: str | None, port: int = 0) -> None:
        """Listen; on any free port if none is given, on all addresses if there is no host.  Raises OSError."""
        try:
            found = await self._loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, _, _, _, address in dict.fromkeys(found):
                self._bind(family, str(address[0]), port)
            if not self._sockets:
                raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        except OSError as error:
            self.close()
            raise OSError(error.errno, f"{host or '*'}:{port} cannot be listened on: {error.strerror}") from None
        for listening in self._sockets:
            self._listen(listening)

    def close(self) -> None:
        """Let nobody in any more."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        if self._clock is not None:
            self._clock.cancel()
        for visitor in self._strangers:
            visitor.turn_away()

    def visitor(self, request: web.BaseRequest) -> Visitor:
        """Who asks.  Raises ConnectionResetError if he has gone."""
        found = self._inside.get(request.transport) if request.transport is not None else None
        if found is None:
            raise ConnectionResetError("the client has gone")
        return found

    # What visitors tell

    def entered(self, transport: asyncio.BaseTransport, visitor: Visitor) -> None:
        """A visitor can be spoken to."""
        self._inside[transport] = visitor

    def left(self, visitor: Visitor, transport: asyncio.BaseTransport) -> None:
        """A visitor has gone."""
        self._inside.pop(transport, None)
        self._forget(visitor)

    def introduced(self, visitor: Visitor) -> None:
        """A stranger is known."""
        self._forget(visitor)
        self._known[visitor] = None

    def rested(self, visitor: Visitor) -> None:
        """A request has been answered."""
        if visitor in self._known:
            del self._known[visitor]
            self._known[visitor] = None

    def heard(self, visitor: Visitor, size: int) -> None:
        """Bytes that belong to no request yet, or belong to one now."""
        visitor.pending += size
        if visitor in self._strangers:
            self._stranger_bytes += size
            while self._stranger_bytes > self.bounds.stranger_bytes:
                self._drop(next(iter(self._strangers)))

    # Who may come in

    def _bind(self, family: int, host: str, port: int) -> None:
        """Take an address, if this machine has any of its family: without IPv6 it may still be listed."""
        try:
            listening = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return
        self._sockets.append(listening)
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            listening.bind((host, self.port or port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self._sockets.remove(listening)
            listening.close()
            return
        listening.listen(BACKLOG)
        self.port = listening.getsockname()[1]

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Let one in who waits; the loop comes back for the next, after everybody else has had a turn."""
        wait = self._make_room()
        if wait > 0:
            self._rest(listening, wait)
            return
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # above all: no descriptor is left
            self._rest(listening, PAUSE)
            self._complain(error)
            return
        self._let_in(connection)

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        """The socket stays ready for what cannot be accepted: do not look at it for a while."""
        self._loop.remove_reader(listening)
        self._loop.call_later(seconds, self._listen, listening)

    def _complain(self, error: OSError) -> None:
        if self._loop.time() - self._told >= QUIET:
            self._told = self._loop.time()
            inside = f"{len(self._known) + len(self._strangers):,} are open"
            log.warning("a connection cannot be accepted: %s; %s (ulimit -n is the bound)", error.strerror, inside)

    def _make_room(self) -> float:
        """The seconds after which there may be a place; 0 if there is one now."""
        strangers, known = self._strangers, self._known
        full = len(strangers) + len(known) >= self.bounds.connections
        if strangers and (full or len(strangers) >= self.bounds.strangers):
            first = next(iter(strangers))
            wait = first.since + GRACE - self._loop.time()
            if wait > 0:
                return wait
            self._drop(first)
        elif full:
            resting = next((each for each in known if not each.requests), None)
            if resting is None:
                return PAUSE
            self._drop(resting)
        return 0.0

    def _let_in(self, connection: socket.socket) -> None:
        visitor = Visitor(self, self._server(), self._loop.time())
        self._strangers[visitor] = None
        visitor.welcome = self._loop.create_task(self._welcome(visitor, connection))
        if self._clock is None:
            self._watch_clock()

    async def _welcome(self, visitor: Visitor, connection: socket.socket) -> None:
        """Shake hands.  Whatever a client does wrong here is its own matter."""
        patience = self.bounds.stranger_seconds if self._tls else None
        farewell = self.bounds.shutdown_seconds if self._tls else None
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(
                lambda: visitor,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=patience,
                ssl_shutdown_timeout=farewell,
            )
        except OSError:
            self._forget(visitor)
        finally:
            visitor.welcome = None

    def _watch_clock(self) -> None:
        """Turn away strangers whose time is over; look again when that of the next one is."""
        self._clock = None
        now = self._loop.time()
        for stranger in list(self._strangers):
            ends = stranger.since + self.bounds.stranger_seconds
            if ends > now:
                self._clock = self._loop.call_at(ends, self._watch_clock)
                return
            self._drop(stranger)

    def _drop(self, visitor: Visitor) -> None:
        self._forget(visitor)
        visitor.turn_away()

    def _forget(self, visitor: Visitor) -> None:
        if visitor in self._strangers:
            del self._strangers[visitor]
            self._stranger_bytes -= visitor.pending
        self._known.pop(visitor, None)
