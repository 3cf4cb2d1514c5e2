"""A registry with controllers whose time passes only when a test says so."""

from __future__ import annotations

from typing import Any

from tinykube.server import bootstrap, errors, rules
from tinykube.server.controllers import Controller
from tinykube.server.deletion import delete
from tinykube.server.kinds import NODE, POD, Kind
from tinykube.server.options import DeleteOptions, WriteOptions
from tinykube.server.registry import Registry, Target
from tinykube.server.store import Kept, Store

Json = dict[str, Any]


class Damaged:
    """A journal of what another world has stored, some of which cannot be read any more."""

    def __init__(self, earlier: World, *unreadable: tuple[Kind, str]) -> None:
        names = {(kind.resource, key) for kind, key in unreadable}
        store = earlier.store
        stored = {(kind.resource, key): each for kind in store.kinds for key, each in store.range(kind)}
        assert names <= stored.keys()
        good = {name: each for name, each in stored.items() if name not in names}
        self._kept = Kept(store.revision, good, names)

    def put(self, resource: str, key: str, revision: int, data: bytes) -> None: ...

    def remove(self, resource: str, key: str, revision: int) -> None: ...

    def load(self) -> Kept:
        return self._kept


class FullDisk:
    """A journal that takes no writes of a kind while it is full."""

    def __init__(self, kind: Kind) -> None:
        self.full = False
        self._resource = kind.resource

    def put(self, resource: str, key: str, revision: int, data: bytes) -> None:
        if self.full and resource == self._resource:
            raise errors.internal("no room")

    def remove(self, resource: str, key: str, revision: int) -> None:
        self.put(resource, key, revision, b"")

    def load(self) -> Kept:
        return Kept()


class World:
    """What is stored, and what happens to it."""

    def __init__(self, store: Store | None = None) -> None:
        self.time = 1_800_000_000.0
        self.ahead = 0.0
        """How far the clock was set ahead, or back."""
        self.store = store or Store()
        self.registry = Registry(self.store, clock=lambda: self.time + self.ahead, steady=lambda: self.time)
        bootstrap.fill(self.registry)

    def runs(self, controller: Controller) -> Schedule:
        """Let a controller hear of everything from now on."""
        return Schedule(self, controller)

    def create(self, kind: Kind, name: str, namespace: str = "default", **fields: Any) -> Json:
        namespace = namespace if kind.namespaced else ""
        metadata = {"name": name, **fields.pop("metadata", {})}
        sent = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}
        object, _ = rules.read(kind, sent)
        return self.registry.create(Target(kind, namespace), object, WriteOptions("tests")).object

    def delete(self, kind: Kind, name: str, namespace: str = "default", **options: Any) -> None:
        target = Target(kind, namespace if kind.namespaced else "", name)
        delete(self.registry, target, DeleteOptions(**options))

    def node(self, name: str) -> Json:
        return self.create(NODE, name)

    def pod(self, name: str, node: str = "", phase: str = "", **metadata: Any) -> Json:
        spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
        made = self.create(POD, name, spec=spec, metadata=metadata)
        if phase:
            stored = self.store.stored(POD, "default", name)
            assert stored is not None
            made = self.registry.put(POD, {**made, "status": {**made["status"], "phase": phase}}, stored).object
        return made

    def names(self, kind: Kind, namespace: str = "") -> list[str]:
        return [each["metadata"]["name"] for each in self.store.list(kind, namespace)]


class Schedule:
    """When a controller acts."""

    def __init__(self, world: World, controller: Controller) -> None:
        self._world = world
        self._controller = controller
        self.due: float | None = world.time
        world.store.subscribe(lambda change: self._set(controller.note(change)))
        self.pass_time(0)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the controller acts when it said that it wants to."""
        end = self._world.time + seconds
        while self.due is not None and self.due <= end:
            self._world.time, self.due = max(self.due, self._world.time), None
            self._set(self._controller.act())
        self._world.time = end

    def _set(self, seconds: float | None) -> None:
        if seconds is not None:
            due = self._world.time + seconds
            self.due = due if self.due is None else min(due, self.due)
