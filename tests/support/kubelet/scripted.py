"""A runtime and cards that do what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from subak.dialects import Injection
from subak.local.runtime.spec import File, Spec, StartError
from subak.model import manifest
from subak.model.device import Device
from subak.model.reason import Refusal
from subak.node.usage import Use
from tinykube.server.kubelet import Session


class Scripted:
    """A container that the test ends.  When stopped, it ends with 143, at once or, if stubborn, after its grace."""

    def __init__(self, spec: Spec, stubborn: bool) -> None:
        self.spec = spec
        self.stubborn = stubborn
        self.graces: list[float] = []
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return 4711

    @property
    def out_of_memory(self) -> bool:
        return False

    @property
    def running(self) -> bool:
        return not self._exited.done()

    def exit(self, code: int) -> None:
        if self.running:
            self._exited.set_result(code)

    async def wait(self) -> int:
        return await asyncio.shield(self._exited)

    async def stop(self, grace: float) -> None:
        self.graces.append(grace)
        if self.stubborn:
            await asyncio.wait([self._exited], timeout=grace)
        self.exit(137 if self.stubborn else 143)

    async def execute(self, argv: Sequence[str], env: Mapping[str, str], *, stdin: bool, tty: bool) -> Session:
        raise StartError(f"there is no {argv[0]}", 127)


@dataclass
class ScriptedRuntime:
    """Starts scripted containers, by `pod/container`; one that is in `broken` cannot be started."""

    containers: dict[str, list[Scripted]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    broken: dict[str, StartError] = field(default_factory=dict)
    stubborn: set[str] = field(default_factory=set)
    takes: float = 0.0

    async def start(self, spec: Spec) -> Scripted:
        name = spec.name.partition("/")[2]
        await asyncio.sleep(self.takes)
        if name in self.broken:
            raise self.broken[name]
        container = Scripted(spec, name in self.stubborn)
        self.containers.setdefault(name, []).append(container)
        self.order.append(name)
        return container

    async def close(self) -> None:
        for attempts in self.containers.values():
            for container in attempts:
                container.exit(137)

    def attempts(self, name: str) -> list[Scripted]:
        return self.containers.get(name, [])

    def __getitem__(self, name: str) -> Scripted:
        """The latest attempt."""
        return self.containers[name][-1]


@dataclass
class ScriptedDevices:
    """Gives every container the same, and refuses pods by name."""

    injection: Injection = field(default_factory=Injection)
    refused: dict[str, Refusal] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    make_believe: bool = True
    started: list[tuple[str, str]] = field(default_factory=list)
    used: dict[str, dict[str, list[tuple[Device, Use]]]] = field(default_factory=dict)

    async def allocate(self, pod: manifest.Pod) -> Sequence[Injection]:
        if pod.name in self.refused:
            raise self.refused[pod.name]
        self.held.add(pod.name)
        return [self.injection] * len(pod.containers)

    def starting(self, pod: manifest.Pod, position: int) -> None:
        self.started.append((pod.name, pod.containers[position].name))

    async def release(self, pod: manifest.Pod) -> None:
        self.held.discard(pod.name)

    def use(self, pod: manifest.Pod) -> Mapping[str, Sequence[tuple[Device, Use]]]:
        return self.used.get(pod.name, {})

    def files(self, node: str) -> Sequence[File]:
        return ()

    def simulated(self, node: str) -> bool:
        return self.make_believe
