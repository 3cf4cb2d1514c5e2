"""A container runtime's side of NRI, as containerd speaks it: for tests of plugins.

It is strict where containerd is: a frame of more than 4,096 bytes ends the connection.  It can be as old as one wishes,
cuts its own messages into frames of any size, and holds to the order of containerd: register, configure, synchronize.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from subak.node.nri import wire
from subak.node.nri.messages import Adjustment, Mount, State
from subak.node.nri.ttrpc import Assembler, Failure, Message, Request, Response
from subak.node.nri.wire import Fields

NEW = ("containerd", "v2.3.7", "v0.12.0")
OLD = ("containerd", "1.7.27", "")
PLUGIN, RUNTIME = 1, 2


def pod(
    uid: str,
    name: str = "",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    id: str = "",
) -> bytes:
    """A PodSandbox."""
    texts = (id or f"sandbox-{uid}", name or uid, uid, namespace)
    content = b"".join(wire.text(number, value) for number, value in enumerate(texts, 1))
    noted = {"kubernetes.io/config.source": "api", **(annotations or {})}
    return content + wire.mapping(5, {"io.kubernetes.pod.uid": uid}) + wire.mapping(6, noted) + wire.number(9, 4711)


def container(
    name: str,
    uid: str,
    env: Iterable[str] = (),
    mounts: Iterable[Mount] = (),
    id: str = "",
    state: State = State.CREATED,
) -> bytes:
    """A Container of the pod's sandbox."""
    content = wire.text(1, id or f"{uid}-{name}") + wire.text(2, f"sandbox-{uid}") + wire.text(3, name)
    content += wire.number(4, state) + b"".join(wire.text(8, each) for each in env)
    content += b"".join(wire.data(9, each.encode()) for each in mounts)
    return content + wire.data(11, wire.text(5, "/kubepods/x")) + wire.number(14, 1_700_000_000)


def about(sandbox: bytes, content: bytes, adjustment: bytes = b"") -> bytes:
    """A request about a container."""
    parts = wire.data(1, sandbox) + wire.data(2, content)
    return parts + (wire.data(3, adjustment) if adjustment else b"")


class Link:
    """One plugin that is connected."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: int) -> None:
        self._reader, self._writer, self._cut = reader, writer, cut
        self._streams = 1
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self.registered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.events = 0
        self._reading = asyncio.create_task(self._read())

    def send(self, connection: int, message: Message) -> None:
        content = message.encode()
        for start in range(0, len(content), self._cut):
            part = content[start : start + self._cut]
            self._writer.write(struct.pack(">II", connection, len(part)) + part)

    async def call(self, method: str, payload: bytes = b"", service: str = "nri.pkg.api.v1alpha1.Plugin") -> Response:
        stream, self._streams = self._streams, self._streams + 2
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[stream] = answer
        # containerd adds what OpenTelemetry wants
        request = Request(service, method, payload).encode() + wire.number(4, 2_000_000_000)
        request += wire.data(5, wire.text(1, "traceparent") + wire.text(2, "00-0"))
        self.send(PLUGIN, Message(stream, 1, request))
        async with asyncio.timeout(10):
            return await answer

    async def begin(
        self, version: tuple[str, str, str], state: Sequence[bytes] = (b"",), timeout_ms: int = 2000
    ) -> None:
        """Configure and synchronize, in as many parts as there are states.  containerd is quicker than its answer."""
        message = await self.registered
        name, number, nri = version
        payload = wire.text(2, name) + wire.text(3, number) + wire.number(4, 5000) + wire.number(5, timeout_ms)
        configured = asyncio.create_task(self.call("Configure", payload + wire.text(6, nri)))
        await asyncio.sleep(0)
        self.send(RUNTIME, Message(message.stream, 2))
        self.events = Fields((await configured).payload).number(2)
        for place, part in enumerate(state, 1):
            more = place < len(state)
            response = await self.call("Synchronize", part + wire.number(3, more))
            assert response.failure is None, response.failure
            assert Fields(response.payload).flag(2) == more

    async def create(self, sandbox: bytes, content: bytes) -> Adjustment:
        """The adjustment for a container.  Raises Failure."""
        response = await self.call("CreateContainer", about(sandbox, content))
        if response.failure is not None:
            raise response.failure
        return Adjustment.decode(Fields(response.payload).message(1))

    async def validate(self, sandbox: bytes, content: bytes, adjustment: Adjustment) -> str:
        """Why the plugin rejects what is to be done to the container; empty if it does not."""
        response = await self.call("ValidateContainerAdjustment", about(sandbox, content, adjustment.encode()))
        assert response.failure is None, response.failure
        fields = Fields(response.payload)
        assert fields.flag(1) == bool(fields.text(2))
        return fields.text(2)

    def garble(self, content: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(content)

    async def closed(self) -> None:
        """Wait until the plugin has hung up."""
        async with asyncio.timeout(10):
            await asyncio.wait({self._reading})

    async def close(self) -> None:
        self._writer.transport.abort()
        await asyncio.wait({self._reading})
        for each in self._waiting.values():
            each.cancel()

    async def _read(self) -> None:
        assemblers = {PLUGIN: Assembler(), RUNTIME: Assembler()}
        try:
            while True:
                connection, length = struct.unpack(">II", await self._reader.readexactly(8))
                assert length <= 4096, "cannot allocate memory"
                for message in assemblers[connection].feed(await self._reader.readexactly(length)):
                    if connection == RUNTIME:
                        self.registered.set_result(message)
                    else:
                        assert message.kind == 2
                        self._waiting.pop(message.stream).set_result(Response.decode(message.data))
        except (asyncio.IncompleteReadError, OSError):
            return


class FakeRuntime:
    """The runtime; `links` are the plugins in the order in which they connected."""

    def __init__(self, socket: Path, cut: int) -> None:
        self.socket, self._cut = socket, cut
        self.links: list[Link] = []
        self._news = asyncio.Condition()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._news:
            self.links.append(Link(reader, writer, self._cut))
            self._news.notify_all()

    async def link(self, number: int = 0) -> Link:
        """The plugin that connected as this one."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: len(self.links) > number)
        return self.links[number]


@asynccontextmanager
async def runtime(directory: Path, cut: int = 1 << 20) -> AsyncIterator[FakeRuntime]:
    """A runtime that listens in this directory, and cuts what it says into frames of this size."""
    fake = FakeRuntime(directory / "nri.sock", cut)
    server = await asyncio.start_unix_server(fake.accept, str(fake.socket))
    try:
        yield fake
    finally:
        for each in fake.links:
            await each.close()
        server.close()


__all__ = ["NEW", "OLD", "Failure", "FakeRuntime", "Link", "about", "container", "pod", "runtime"]
