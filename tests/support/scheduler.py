"""A tiny API server for the core: objects, a watch that may lag, and bindings that may go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import (
    Bind,
    BindFailed,
    DeviceSeen,
    Event,
    Evict,
    Instruction,
    NodeSeen,
    Nominate,
    PodGone,
    PodSeen,
    QuotasSeen,
    Report,
)


def pod(name: str, limits: dict[str, Any], *, uid: str = "", priority: int = 0, **more: Any) -> manifest.Pod:
    """A pod with one container."""
    content = {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", **more.pop("metadata", {})},
        "status": more.pop("status", {}),
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": {"limits": limits}}], **more},
    }
    return msgspec.convert(content, manifest.Pod)


def volcano_node(name: str, cards: int = 1, mib: int = 1000) -> manifest.Node:
    """A node whose cards only Volcano describes."""
    capacity = {"volcano.sh/gpu-number": cards, "volcano.sh/gpu-memory": cards * mib}
    return msgspec.convert({"metadata": {"name": name}, "status": {"capacity": capacity}}, manifest.Node)


@dataclass
class Cluster:
    """What is true, and what the core has been told of it."""

    nodes: dict[str, manifest.Node] = field(default_factory=dict)
    pods: dict[str, manifest.Pod] = field(default_factory=dict)
    core: Core = field(default_factory=Core)
    unseen: list[Event] = field(default_factory=list)
    reports: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, list[str]] = field(default_factory=dict)
    evictions: list[str] = field(default_factory=list)
    now: float = 0.0

    def add_node(self, node: manifest.Node) -> None:
        self.nodes[node.name] = node
        self.unseen.append(NodeSeen(node))

    def create(self, fresh: manifest.Pod) -> None:
        self.pods[fresh.key] = fresh
        self.unseen.append(PodSeen(fresh))

    def delete(self, key: str) -> None:
        del self.pods[key]
        self.unseen.append(PodGone(key))

    def finish(self, key: str) -> None:
        self.pods[key] = msgspec.structs.replace(self.pods[key], status=manifest.PodStatus(phase="Succeeded"))
        self.unseen.append(PodSeen(self.pods[key]))

    def see(self, count: int | None = None) -> None:
        """Let the core see the oldest changes."""
        for _ in range(len(self.unseen) if count is None else min(count, len(self.unseen))):
            self.core.handle(self.unseen.pop(0))

    def cycle(self) -> list[Instruction]:
        """One cycle, its instructions not yet carried out."""
        self.now += 0.001
        return self.core.cycle(self.now)

    def carry_out(self, instruction: Instruction, refuse: bool = False) -> None:
        """Do what the core says, as an API server would."""
        match instruction:
            case Bind(key, uid, node, annotations):
                known = self.pods.get(key)
                alive = known is not None and known.metadata.uid == uid and not known.spec.node_name
                if refuse or not alive or known is None:
                    self.core.handle(BindFailed(key, uid, "refused"))
                    return
                metadata = msgspec.structs.replace(known.metadata, annotations={**known.annotations, **annotations})
                spec = msgspec.structs.replace(known.spec, node_name=node)
                self.pods[key] = msgspec.structs.replace(known, metadata=metadata, spec=spec)
                self.bindings.setdefault(uid, []).append(node)
                self.unseen.append(PodSeen(self.pods[key]))
            case Report(key, _, message, _):
                self.reports[key] = message
            case Nominate(key, uid, node):
                self._set_status(key, uid, nominated_node_name=node)
            case Evict(key, uid, _, _, _):
                self.evictions.append(key)
                self.mark(key, uid)
                self.terminate(key, uid)

    def mark(self, key: str, uid: str = "") -> None:
        """The first half of an eviction: the condition."""
        mark = manifest.Condition(type="DisruptionTarget", status="True", reason=manifest.PREEMPTED)
        self._set_status(key, uid, conditions=[mark])

    def terminate(self, key: str, uid: str = "") -> None:
        """The second half: the pod is being deleted, and is there until `delete`."""
        known = self.pods.get(key)
        if known is not None and uid in ("", known.metadata.uid):
            metadata = msgspec.structs.replace(known.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self._put(msgspec.structs.replace(known, metadata=metadata))

    def _set_status(self, key: str, uid: str, **fields: Any) -> None:
        known = self.pods.get(key)
        if known is not None and uid in ("", known.metadata.uid):
            self._put(msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, **fields)))

    def _put(self, changed: manifest.Pod) -> None:
        self.pods[changed.key] = changed
        self.unseen.append(PodSeen(changed))

    def kubelets(self) -> None:
        """All pods that are being deleted are gone."""
        for key in [key for key, each in self.pods.items() if each.metadata.deletion_timestamp is not None]:
            self.delete(key)

    def settle(self) -> None:
        """Everything is seen and done, pauses included."""
        for _ in range(100):
            self.see()
            instructions = self.cycle()
            for instruction in instructions:
                self.carry_out(instruction)
            if not instructions and not self.unseen:
                wake = self.core.wakes_at()
                if wake is None:
                    return
                self.now = max(self.now, wake)
        raise AssertionError("the core does not come to rest")

    def restart(self) -> None:
        """A new core that lists everything."""
        self.core = Core()
        self.unseen = [
            *(NodeSeen(node) for node in self.nodes.values()),
            *(PodSeen(each) for each in self.pods.values()),
        ]

    def placed(self) -> dict[str, str]:
        """Where each bound pod is, by name."""
        return {each.name: each.spec.node_name for each in self.pods.values() if each.spec.node_name}


__all__ = ["Cluster", "DeviceSeen", "QuotasSeen", "pod", "volcano_node"]
