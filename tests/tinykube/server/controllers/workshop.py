"""Workloads in a world of their own: the tests say what becomes of the pods, and when time passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

from tests.tinykube.server.controllers.world import Json, World
from tinykube.server.controllers import Controller
from tinykube.server.controllers.garbage import Garbage
from tinykube.server.controllers.strays import Strays
from tinykube.server.controllers.workloads import Workloads
from tinykube.server.kinds import EVENT, NODE, POD, Kind
from tinykube.server.options import WriteOptions
from tinykube.server.registry import Target
from tinykube.server.store import Change, Store

CONTAINERS = [{"name": "c", "image": "i"}]


def _heard(controller: Controller, change: Change) -> None:
    controller.note(change)


def _node(pod: Json) -> str:
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return str(terms[0]["matchFields"][0]["values"][0]) if terms else ""


class Killed(Exception):
    """The process was killed in the middle of its work."""


class Workshop(World):
    """A world with controllers; `restart` forgets all that they know besides what is stored."""

    def __init__(self, store: Store | None = None) -> None:
        super().__init__(store)
        self._silences: list[Any] = []
        self.restart()

    def restart(self) -> None:
        for silence in self._silences:
            silence()
        Strays(self.registry).act()
        self._controllers: tuple[Controller, ...] = (Garbage(self.registry), Workloads(self.registry))
        self._silences = [self.store.subscribe(partial(_heard, each)) for each in self._controllers]

    def crash(self, writes: int) -> None:
        """Let the controllers act, kill them before their next but so many-th write, and start them again."""
        left = writes

        def guarded(write: Callable[..., Any]) -> Callable[..., Any]:
            def perhaps(*arguments: Any) -> Any:
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                return write(*arguments)

            return perhaps

        store = self.store
        with ExitStack() as undone:
            for name in ("create", "update", "delete"):
                undone.enter_context(patch.object(store, name, guarded(getattr(store, name))))
            undone.enter_context(suppress(Killed))
            self.settle()
        self.restart()

    def settle(self, turns: int = 10_000) -> None:
        """Let the controllers act until there is nothing to do at this moment; or for a few turns only."""
        for _ in range(turns):
            left = [each.act() for each in self._controllers]
            if not any(each is not None and each <= 0 for each in left):
                return
        assert turns < 10_000, "the controllers never come to rest"

    def pass_time(self, seconds: float) -> None:
        end = self.time + seconds
        self.settle()
        while self.time < end:
            left = [each.act() for each in self._controllers]
            due = min((each for each in left if each is not None and each > 0), default=seconds)
            self.time = min(end, self.time + due)
            self.settle()

    def make(
        self, kind: Kind, name: str = "w", labels: Json | None = None, pod: Json | None = None, **spec: Any
    ) -> Json:
        labels = labels or {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS, **(pod or {})}}
        if kind.kind != "Job":
            spec = {"selector": {"matchLabels": labels}, **spec}
        return self.create(kind, name, spec={**spec, "template": template})

    def change(self, kind: Kind, name: str = "w", **spec: Any) -> None:
        def changed(object: Json) -> Json:
            return {**object, "spec": {**object["spec"], **spec}}

        self.registry.patch(Target(kind, "default", name), changed, WriteOptions("tests"))

    def set_image(self, kind: Kind, image: str, name: str = "w") -> None:
        template = self.object(kind, name)["spec"]["template"]
        containers = [{**template["spec"]["containers"][0], "image": image}]
        self.change(kind, name, template={**template, "spec": {**template["spec"], "containers": containers}})

    def object(self, kind: Kind, name: str = "w") -> Json:
        found = self.store.get(kind, "default", name)
        assert found is not None, f"{kind.kind} {name} is gone"
        return found

    def conditions(self, kind: Kind, name: str = "w") -> dict[str, tuple[str, str]]:
        found = self.object(kind, name)["status"].get("conditions", ())
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    # Pods

    def pods(self, *phases: str) -> list[Json]:
        """Those that are there to stay."""
        found = [pod for pod in self.store.list(POD) if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in found if not phases or pod["status"]["phase"] in phases]

    def set_phase(self, pod: Json, phase: str) -> None:
        stored = self.store.stored(POD, "default", pod["metadata"]["name"])
        assert stored is not None
        word = "True" if phase == "Running" else "False"
        ready = {"type": "Ready", "status": word, "lastTransitionTime": self.registry.now()}
        spec = {**stored.object["spec"], "nodeName": _node(pod) or "somewhere"}  # so that it is given time to end
        status = {"phase": phase, "conditions": [ready]}
        self.registry.put(POD, {**stored.object, "spec": spec, "status": status}, stored)

    def reap(self) -> None:
        """Let those end that are to go."""
        for pod in self.store.list(POD):
            if "deletionTimestamp" in pod["metadata"] and pod["metadata"].get("deletionGracePeriodSeconds"):
                self.kill(pod)
        self.settle()

    def run_all(self) -> None:
        """Let all pods run that wait, and end that are to go, until nobody waits."""
        self.settle()
        self.reap()
        while waiting := self.pods("Pending"):
            for pod in waiting:
                if self.store.get(POD, "default", pod["metadata"]["name"]) is not None:
                    self.set_phase(pod, "Running")
            self.settle()
            self.reap()

    def nodes(self, *phases: str) -> list[str]:
        """The nodes that pods of a DaemonSet are for."""
        return sorted(_node(pod) for pod in self.pods(*phases))

    def kill(self, pod: Json) -> None:
        self.delete(POD, pod["metadata"]["name"], grace=0)

    def add_node(self, name: str, **labels: str) -> None:
        made = self.create(NODE, name, metadata={"labels": labels})
        stored = self.store.stored(NODE, "", name)
        assert stored is not None
        self.registry.put(NODE, {**made, "spec": {}}, stored)

    def events(self, reason: str) -> list[str]:
        return [each["message"] for each in self.store.list(EVENT) if each["reason"] == reason]
