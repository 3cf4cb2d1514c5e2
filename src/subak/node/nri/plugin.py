"""The life of an NRI plugin.

    connect ──> register ──> configured ──> synchronized ──> questions about containers ──┐
       ▲                                                                                   │ the runtime hangs up,
       └──────────────────────────────── wait a moment ◄───────────────────────────────────┘ or says nonsense

There is one connection at a time: two would both set the same variables, and the runtime would create no container any
more.  Requests are answered as they come, each in its own task and well before the runtime gives up: an answer that
comes too late would mean that the container starts without us.  An answer that we cannot give is a failure, which keeps
the container from being created; the kubelet tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from subak.dialects import mark
from subak.node.nri import messages, mux, ttrpc
from subak.node.nri.messages import Adjustment, Container, Event, Runtime, Sandbox, Subject, Synchronization
from subak.node.nri.mux import Mux
from subak.node.nri.ttrpc import Failure, Message, Request, Response
from subak.node.nri.wire import Fields, Malformed

SOCKET = Path("/var/run/nri/nri.sock")
NAME, INDEX = mark.PLUGIN_NAME, "10"
REGISTRATION_S = 5.0
REQUEST_S = 2.0
"""What the runtime waits for a plugin, unless it says otherwise."""
USABLE = 0.75
"""The part of that time in which we answer."""
LONGEST_REASON = 2_000
"""How many letters of a failure are sent: it becomes the waiting reason of a container."""

EVENTS = (Event.CREATE_CONTAINER, Event.STOP_CONTAINER, Event.REMOVE_CONTAINER)

log = logging.getLogger(__name__)


class Refused(Exception):
    """The container must not be created; the text says why."""


class Handler(Protocol):
    """What a plugin does.  Everything is answered quickly: nothing here may wait for an API server."""

    def configure(self, runtime: Runtime) -> None:
        """The runtime has introduced itself."""

    def synchronize(self, sandboxes: Sequence[Sandbox], containers: Sequence[Container]) -> None:
        """These are all pods and living containers of the runtime."""

    async def create(self, sandbox: Sandbox, container: Container) -> Adjustment:
        """What the container gets.  Raises Refused."""

    def validate(self, sandbox: Sandbox, container: Container, adjustment: Adjustment) -> str:
        """Why the adjustment that all plugins together want is not right; empty if it is."""

    def stop(self, sandbox: Sandbox, container: Container) -> None:
        """The container has stopped, or was never created."""


class Plugin:
    """The plugin.  `connected` says whether the runtime asks us now."""

    def __init__(
        self,
        handler: Handler,
        socket: Path = SOCKET,
        told: Callable[[bool], None] = lambda connected: None,
        pauses: Sequence[float] = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    ) -> None:
        """`told` is called whenever `connected` changes."""
        self.connected = False
        self.runtime: Runtime | None = None
        self._handler = handler
        self._socket = socket
        self._told = told
        self._pauses = pauses
        self._failures = 0

    async def run(self) -> None:
        """Connect again and again, until cancelled."""
        while True:
            try:
                await self._live()
                log.warning("NRI: the runtime has closed %s; connecting again", self._socket)
            except (OSError, Malformed, Failure, TimeoutError) as error:
                log.warning("NRI: %s: %s; connecting again", self._socket, error)
            pause = self._pauses[min(self._failures, len(self._pauses) - 1)]
            self._failures += 1
            await asyncio.sleep(pause)

    async def _live(self) -> None:
        """One connection, from its beginning to its end."""
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        session = _Session(Mux(reader, writer), self._handler, self._synchronized)
        try:
            await session.run()
        finally:
            self._tell(False)
            await session.close()

    def _synchronized(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._failures = 0
        log.info("NRI: %s asks about each container", runtime)
        self._tell(True)

    def _tell(self, connected: bool) -> None:
        if self.connected != connected:
            self.connected = connected
            self._told(connected)


class _Session:
    """One connection."""

    def __init__(self, frames: Mux, handler: Handler, ready: Callable[[Runtime], None]) -> None:
        self._mux = frames
        self._handler = handler
        self._ready = ready
        self._runtime = Runtime()
        self._patience = REQUEST_S * USABLE
        self._tasks: set[asyncio.Task[None]] = set()
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sandboxes: list[Sandbox] = []
        self._containers: list[Container] = []
        self._methods: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create,
            "ValidateContainerAdjustment": self._validate,
            "StopContainer": self._stop,
            "RemoveContainer": self._stop,
            "StateChange": self._state_change,
            "Shutdown": self._shut_down,
        }

    async def run(self) -> None:
        """Register, and answer until the runtime hangs up.  Raises OSError, Malformed, Failure, TimeoutError."""
        reading = asyncio.create_task(self._read())
        try:
            request = Request(messages.RUNTIME_SERVICE, "RegisterPlugin", messages.registration(NAME, INDEX))
            await self._mux.send(mux.RUNTIME, Message(1, ttrpc.REQUEST, request.encode()).encode())
            async with asyncio.timeout(REGISTRATION_S):
                await asyncio.wait({reading, self._registered}, return_when=asyncio.FIRST_COMPLETED)
            if self._registered.done():
                self._registered.result()
            await reading
        finally:
            reading.cancel()

    async def close(self) -> None:
        """Hang up; what is still being answered is of no use any more."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._registered.done() and not self._registered.cancelled():
            self._registered.exception()  # seen, or asyncio complains
        await self._mux.close()

    async def _read(self) -> None:
        assemblers = {mux.PLUGIN: ttrpc.Assembler(), mux.RUNTIME: ttrpc.Assembler()}
        while (frame := await self._mux.read()) is not None:
            connection, content = frame
            if connection not in assemblers:
                continue
            for message in assemblers[connection].feed(content):
                if connection == mux.RUNTIME:
                    self._answered(message)
                elif message.kind == ttrpc.REQUEST:
                    task = asyncio.create_task(self._answer(message))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _answered(self, message: Message) -> None:
        """The only thing that we ask is to be registered."""
        if message.kind == ttrpc.RESPONSE and message.stream == 1 and not self._registered.done():
            failure = Response.decode(message.data).failure
            if failure is None:
                self._registered.set_result(None)
            else:
                self._registered.set_exception(Failure(failure.code, f"not registered: {failure.message}"))

    async def _answer(self, message: Message) -> None:
        try:
            response = Response(await self._called(Request.decode(message.data)))
        except Failure as failure:
            response = Response(failure=failure)
        except Malformed as error:
            response = Response(failure=Failure(ttrpc.INVALID_ARGUMENT, f"subak cannot read the request: {error}"))
        except TimeoutError:
            response = Response(failure=Failure(ttrpc.FAILED_PRECONDITION, "subak could not answer in time"))
        except Exception:
            # Whatever goes wrong in here, no answer would let the container start without us.
            log.exception("NRI: a request could not be answered")
            response = Response(failure=Failure(ttrpc.INTERNAL, "subak failed; its log says why"))
        with suppress(OSError):  # the runtime has gone; the reader sees it too
            await self._mux.send(mux.PLUGIN, Message(message.stream, ttrpc.RESPONSE, response.encode()).encode())

    async def _called(self, request: Request) -> bytes:
        method = self._methods.get(request.method) if request.service == messages.PLUGIN_SERVICE else None
        if method is None:
            raise Failure(ttrpc.UNIMPLEMENTED, "not implemented")
        async with asyncio.timeout(self._patience):
            return await method(request.payload)

    async def _configure(self, payload: bytes) -> bytes:
        self._runtime = Runtime.decode(payload)
        self._patience = (self._runtime.request_ms / 1000 or REQUEST_S) * USABLE
        self._handler.configure(self._runtime)
        validating = (Event.VALIDATE_CONTAINER_ADJUSTMENT,) if self._runtime.validates else ()
        return messages.subscription((*EVENTS, *validating))

    async def _synchronize(self, payload: bytes) -> bytes:
        part = Synchronization.decode(payload)
        self._sandboxes += part.sandboxes
        self._containers += part.containers
        if not part.more:
            sandboxes, containers = self._sandboxes, self._containers
            self._sandboxes, self._containers = [], []
            self._handler.synchronize(sandboxes, containers)
            self._ready(self._runtime)
        return messages.synchronized(part.more)

    async def _create(self, payload: bytes) -> bytes:
        subject = Subject.decode(payload)
        try:
            return messages.adjusted(await self._handler.create(subject.sandbox, subject.container))
        except Refused as refused:
            reason = str(refused)
            if len(reason) > LONGEST_REASON:
                reason = reason[: LONGEST_REASON - 4] + " ..."
            raise Failure(ttrpc.FAILED_PRECONDITION, reason) from None

    async def _validate(self, payload: bytes) -> bytes:
        subject = Subject.decode(payload)
        rejection = self._handler.validate(subject.sandbox, subject.container, subject.adjustment)
        return messages.verdict(rejection[:LONGEST_REASON])

    async def _stop(self, payload: bytes) -> bytes:
        subject = Subject.decode(payload)
        self._handler.stop(subject.sandbox, subject.container)
        return b""

    async def _state_change(self, payload: bytes) -> bytes:
        """Runtimes before NRI 0.12 have one method for all that merely happens."""
        if Fields(payload).number(1) == Event.REMOVE_CONTAINER:
            subject = Subject.decode(payload, at=2)
            self._handler.stop(subject.sandbox, subject.container)
        return b""

    async def _shut_down(self, payload: bytes) -> bytes:
        return b""
