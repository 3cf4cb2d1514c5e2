"""A guard with pods that a test makes, and what it says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from subak.model import manifest
from subak.node.arbiter import Arbiter
from subak.node.cdi import Catalogue
from subak.node.guard import Exemptions, Guard
from subak.node.host import Host
from subak.node.machine import Machine
from subak.node.nri.messages import Adjustment, Container, Mount, Runtime, Sandbox, State
from subak.policy.place import place
from subak.snapshot.cluster import Snapshot
from tests.support.machines import INTERPRETER, machine

A10 = machine("shared", taints=[])
CARD = A10.devices[0].id
HALF = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "12000"}
NEW = Runtime("containerd", "v2.3.7", 2000, "v0.12.0")
RECORD = "hami.io/vgpu-devices-allocated"
API = {"kubernetes.io/config.source": "api"}


class Watch:
    """The pods that the agent's watch has seen."""

    def __init__(self) -> None:
        self.seen: dict[str, manifest.Pod] = {}
        self.late: dict[str, manifest.Pod] = {}
        self.waited: list[float] = []

    def get(self, uid: str) -> manifest.Pod | None:
        return self.seen.get(uid)

    async def wait(self, uid: str, seconds: float) -> manifest.Pod | None:
        self.waited.append(seconds)
        if uid in self.late:
            self.seen[uid] = self.late.pop(uid)
        return self.seen.get(uid)

    def __iter__(self) -> Iterator[manifest.Pod]:
        return iter(tuple(self.seen.values()))


class Said:
    """What the guard wants said and done."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, str, str]] = []
        self.warnings: list[tuple[str, str]] = []
        self.evictions: list[tuple[str, str]] = []

    def refused(self, pod: manifest.Pod, container: str, message: str, cause: str = "") -> None:
        self.refusals.append((pod.name, container, message))

    def warn(self, pod: manifest.Pod, container: str, message: str) -> None:
        self.warnings.append((pod.name, message))

    def evict(self, pod: manifest.Pod, message: str) -> None:
        self.evictions.append((pod.name, message))


class Node:
    """A node: its guard, its watch, and what was said."""

    def __init__(
        self,
        machine: Machine = A10,
        folder: Path | None = None,
        runtime: Runtime = NEW,
        cdi: Path | None = None,
        exempt: Exemptions | None = None,
    ) -> None:
        self.machine = machine
        self.watch = Watch()
        self.said = Said()
        self.host = None if folder is None else Host.on_node(folder)
        self.runtime = runtime
        self.catalogue = Catalogue([] if cdi is None else [cdi])
        self.exempt = exempt
        self.guard = self.restarted()

    def restarted(self) -> Guard:
        """A new guard, as after a restart of the agent."""
        self.arbiter = Arbiter(self.machine, INTERPRETER, self.host)
        self.guard = Guard(
            self.arbiter,
            INTERPRETER,
            self.watch,
            self.said,
            host=self.host,
            exempt=self.exempt,
            catalogue=self.catalogue,
        )
        self.guard.configure(self.runtime)
        return self.guard

    def bound(self, name: str, limits: dict[str, str] | None = None, **spec: Any) -> manifest.Pod:
        """A pod that a scheduler who knows of no other pod has bound here; the watch sees it."""
        pod = bound(self.machine, name, limits, **spec)
        self.watch.seen[name] = pod
        return pod

    async def create(self, name: str, container: str = "c", env: tuple[str, ...] = (), **rest: Any) -> Adjustment:
        """Let the runtime create a container of the pod, and check what it is about to do."""
        of = sandbox(name, **rest)
        it = Container(f"{name}-{container}", of.id, container, State.CREATED, env)
        adjustment = await self.guard.create(of, it)
        rejection = self.guard.validate(of, it, adjustment)
        assert not rejection, rejection
        return adjustment

    def stop(self, name: str, container: str = "c") -> None:
        self.guard.stop(sandbox(name), Container(f"{name}-{container}", f"sandbox-{name}", container))

    def phase(self, name: str, phase: str) -> None:
        """Let the watch see that the pod is so far."""
        pod = self.watch.seen[name]
        self.watch.seen[name] = msgspec.structs.replace(pod, status=manifest.PodStatus(phase=phase))

    def annotate(self, name: str, **annotations: str) -> None:
        pod = self.watch.seen[name]
        noted = {**pod.annotations, **{key.replace("__", "/"): text for key, text in annotations.items()}}
        metadata = msgspec.structs.replace(pod.metadata, annotations=noted)
        self.watch.seen[name] = msgspec.structs.replace(pod, metadata=metadata)


def sandbox(name: str, namespace: str = "default", annotations: dict[str, str] | None = None) -> Sandbox:
    return Sandbox(f"sandbox-{name}", name, name, namespace, API if annotations is None else annotations)


def bound(machine: Machine, name: str, limits: dict[str, str] | None = None, **spec: Any) -> manifest.Pod:
    """A pod as a scheduler binds it that knows of no other pod; its name is its UID."""
    node, _ = machine.digest(INTERPRETER)
    containers = [{"name": "c", "resources": {"limits": HALF if limits is None else limits}}, {"name": "side"}]
    content = {"metadata": {"name": name, "uid": name}, "spec": {"containers": containers, **spec}}
    pod = INTERPRETER.admit(msgspec.convert(content, manifest.Pod))
    placement = place(Snapshot([node]), INTERPRETER.request(pod))
    assert placement is not None
    annotations = {**pod.annotations, **INTERPRETER.annotations(pod, placement, node, 0)}
    metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(
        pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=machine.name)
    )


def running(adjustment: Adjustment, name: str, container: str = "c") -> Container:
    """A container as the runtime lists it that was created with this adjustment."""
    env = tuple(f"{key}={value}" for key, value in adjustment.env)
    return Container(f"{name}-{container}", f"sandbox-{name}", container, State.RUNNING, env, adjustment.mounts)


def bind(destination: str, source: str = "/somewhere") -> Mount:
    return Mount(destination, "bind", source, ("rbind", "rw"))
