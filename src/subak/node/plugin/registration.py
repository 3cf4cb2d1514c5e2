"""The device plugin beside a kubelet that comes and goes.

Kubelet knows a plugin only after it has registered, and forgets it when it ends.  When it starts, it removes all
sockets of its directory, and begins to admit pods a moment later: those that need a slot fail for good if the plugin is
not back by then.  So the directory is looked at often, and a new kubelet is answered at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio

from subak.model.variables import SLOT
from subak.node.plugin.api import deviceplugin_pb2 as api
from subak.node.plugin.podresources import DIAL
from subak.node.plugin.service import OPTIONS, VERSION, Service

DIRECTORY = Path("/var/lib/kubelet/device-plugins")
"""Compiled into kubelet."""
KUBELET, OWN = "kubelet.sock", "subak.sock"
LOOK, PAUSE, TIMEOUT = 0.05, 1.0, 10.0

log = logging.getLogger(__name__)

Mark = tuple[int, int] | None
"""What tells one socket from the next at the same path."""


class Registration:
    """Serves the plugin in kubelet's directory, and registers it as often as it must."""

    def __init__(self, service: Service, directory: Path = DIRECTORY) -> None:
        self._service = service
        self._directory = directory
        self.problem = f"no kubelet has been seen in {directory}"
        """Why kubelet does not know the plugin; empty if it does."""

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            kubelet = await self._kubelet()
            try:
                await self._serve(kubelet)
            except (grpc.RpcError, OSError, TimeoutError, RuntimeError) as error:
                self._complain(_text(error))
                await self._pause(kubelet)

    async def _kubelet(self) -> Mark:
        """The socket of a kubelet, as soon as there is one."""
        while (mark := _mark(self._directory / KUBELET)) is None:
            await asyncio.sleep(LOOK)
        return mark

    async def _pause(self, kubelet: Mark) -> None:
        """Wait a while, or until another kubelet is there."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                while _mark(self._directory / KUBELET) in (None, kubelet):
                    await asyncio.sleep(LOOK)

    async def _serve(self, kubelet: Mark) -> None:
        """Serve as long as it is the same kubelet, and our socket is there."""
        own = self._directory / OWN
        own.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._service.handler(),))
        server.add_insecure_port(f"unix:{own}")
        await server.start()
        try:
            marks = (kubelet, _mark(own))
            while marks == self._marks():
                if not self._service.listening:  # kubelet hangs up where an older connection of ours ends late
                    await self._register()
                await self._until_changed(marks)
        finally:
            self.problem = self.problem or "kubelet has restarted, or its directory was emptied"
            await server.stop(None)
            with suppress(OSError):
                if _mark(own) == marks[1]:
                    own.unlink()

    def _marks(self) -> tuple[Mark, Mark]:
        return _mark(self._directory / KUBELET), _mark(self._directory / OWN)

    async def _until_changed(self, marks: tuple[Mark, Mark]) -> None:
        """Return when kubelet may have forgotten us."""
        while self._service.listening and marks == self._marks():
            await asyncio.sleep(LOOK)

    async def _register(self) -> None:
        """Tell kubelet of us, and wait until it listens."""
        async with grpc.aio.insecure_channel(f"unix:{self._directory / KUBELET}", options=DIAL) as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api.RegisterRequest.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            request = api.RegisterRequest(version=VERSION, endpoint=OWN, resource_name=SLOT, options=OPTIONS)
            await register(request, timeout=TIMEOUT)
        async with asyncio.timeout(TIMEOUT):
            while not self._service.listening:
                self._service.change.clear()
                await self._service.change.wait()
        if self.problem:
            log.info("kubelet counts %s now", SLOT)
        self.problem = ""

    def _complain(self, problem: str) -> None:
        problem = f"kubelet in {self._directory} does not take {SLOT}: {problem}"
        if problem != self.problem:
            log.warning("%s; trying again", problem)
        self.problem = problem


def _mark(path: Path) -> Mark:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _text(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
