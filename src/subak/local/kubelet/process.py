"""A container that was started: it is watched until it ends, probed, stopped, and runs further programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from subak.local.kubelet import action, probe
from subak.local.kubelet.context import Context
from subak.local.kubelet.life import SHORTEST_GRACE
from subak.local.kubelet.pod import Action, Container, Probe
from subak.local.runtime import spec as runtime
from tinykube.server.kubelet import Session


class Listener(Protocol):
    """Receives what happens to a container."""

    def exited(self, index: int, process: Process, exit_code: int) -> None:
        """It ended."""

    def probed(self, index: int, kind: probe.Kind, asked: Probe, result: action.Result, counts: bool) -> bool:
        """A probe has a result; False ends the probe."""

    def hook_failed(self, index: int, reason: str, message: str, kill: bool) -> None:
        """A hook failed."""


class Process:
    """One attempt of a container.  Stand-ins and containers without a process have no probes and no hooks."""

    __slots__ = ("_container", "_context", "_env", "_index", "_listener", "_probing", "_running")

    def __init__(
        self,
        context: Context,
        listener: Listener,
        index: int,
        running: runtime.Container,
        container: Container | None,
        env: Mapping[str, str],
    ) -> None:
        self._context = context
        self._listener = listener
        self._index = index
        self._running = running
        self._container = container
        self._env = env
        self._probing: asyncio.Task[None] | None = None

    @property
    def real(self) -> bool:
        """Whether there is a process."""
        return self._running.pid != 0

    @property
    def out_of_memory(self) -> bool:
        """Whether it ended because it had used up its memory."""
        return self._running.out_of_memory

    def attend(self) -> None:
        """Begin to wait for its end, and to probe it."""
        if self._running.pid:
            self._context.spawn(self._wait())
        if self._container is not None:
            if self._container.lifecycle and self._container.lifecycle.post_start:
                self._context.spawn(self._post_start(self._container.lifecycle.post_start))
            if probe.probes(self._container):
                self._probing = self._context.spawn(probe.watch(self._container, self._check, self._report))

    def stop(self, grace: float) -> None:
        """Ask it to end, and end it by force after so many seconds."""
        self._context.spawn(self._stop(grace))

    async def execute(self, command: Sequence[str], *, stdin: bool, tty: bool) -> Session:
        """Run a program beside it.  Raises StartError."""
        env = {"TERM": "xterm", **self._env} if tty else self._env
        return await self._running.execute(command, env, stdin=stdin, tty=tty)

    async def _wait(self) -> None:
        self._ended(await self._running.wait())

    def _ended(self, exit_code: int) -> None:
        if self._probing is not None:
            self._probing.cancel()
        self._listener.exited(self._index, self, exit_code)

    async def _stop(self, grace: float) -> None:
        began = time.monotonic()
        hook = self._container and self._container.lifecycle and self._container.lifecycle.pre_stop
        if hook and self._container and grace > SHORTEST_GRACE:
            result = await action.run(hook, self._container, self._running, self._env, grace)
            if not result.good:
                self._listener.hook_failed(self._index, "FailedPreStopHook", "PreStopHook failed", False)
        await self._running.stop(max(grace - (time.monotonic() - began), SHORTEST_GRACE))
        if not self._running.pid:
            self._ended(await self._running.wait())

    async def _post_start(self, hook: Action) -> None:
        assert self._container is not None
        result = await action.run(hook, self._container, self._running, self._env, float("inf"))
        if not result.good:
            self._listener.hook_failed(self._index, "FailedPostStartHook", "PostStartHook failed", True)

    async def _check(self, asked: Probe) -> action.Result:
        assert self._container is not None
        return await action.run(asked, self._container, self._running, self._env, asked.timeout_seconds)

    def _report(self, kind: probe.Kind, asked: Probe, result: action.Result, counts: bool) -> bool:
        return self._listener.probed(self._index, kind, asked, result, counts)
