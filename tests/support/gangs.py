"""A tiny API server with gangs: `tests.support.scheduler`, and objects of groups and queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from subak.batch.configuration import DEFAULT, Configuration
from subak.model import manifest
from subak.model.group import Group, PriorityClass, Queue, Words
from subak.scheduler.core import Core
from subak.scheduler.messages import (
    AskOwner,
    Configured,
    Event,
    GroupGone,
    GroupSeen,
    Instruction,
    MakeGroup,
    NodeSeen,
    OwnerSeen,
    PodSeen,
    PriorityClassSeen,
    QueueSeen,
    ShowGroup,
    ShowQueue,
    Warn,
)
from tests.support.scheduler import Cluster, pod, volcano_node

GROUP = "scheduling.k8s.io/group-name"
QUEUE = "scheduling.volcano.sh/queue-name"
MEMORY = "volcano.sh/gpu-memory"
TIMEOUT = 300.0


def member(name: str, gang: str = "", mib: int = 1000, **more: Any) -> manifest.Pod:
    """A pod of Volcano's scheduler that asks for so much of a card, of a gang or by itself."""
    metadata = more.pop("metadata", {})
    annotations = {**metadata.pop("annotations", {}), **({GROUP: gang} if gang else {})}
    return pod(
        name,
        more.pop("limits", {MEMORY: mib}),
        schedulerName=more.pop("scheduler", "volcano"),
        metadata={**metadata, "annotations": annotations},
        **more,
    )


@dataclass
class GangCluster(Cluster):
    """What is true, and what the core has been told of it, with gangs and queues."""

    groups: dict[str, Group] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    classes: dict[str, PriorityClass] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    configuration: Configuration = DEFAULT
    shown: list[Instruction] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unseen.append(self.configured)

    @property
    def configured(self) -> Event:
        """The configuration in force."""
        return Configured(self.configuration, TIMEOUT)

    def add_nodes(self, *cards: int, mib: int = 1000) -> None:
        """Nodes `n0`, `n1`, ... with so many cards each."""
        for number, count in enumerate(cards):
            self.add_node(volcano_node(f"n{number}", count, mib))

    def group(self, name: str, min_member: int, **facts: Any) -> None:
        """Volcano's PodGroup in the namespace `default`."""
        self._put_group(
            Group(words=Words.VOLCANO, key=f"default/{name}", uid=f"uid-{name}", min_member=min_member, **facts)
        )

    def ungroup(self, name: str) -> None:
        """The PodGroup is removed."""
        self.groups.pop(f"default/{name}", None)
        self.unseen.append(GroupGone(Words.VOLCANO, f"default/{name}"))

    def queue(self, name: str, state: str = "", **spec: Any) -> None:
        """A queue."""
        content = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"state": state}}
        self.queues[name] = msgspec.convert(content, Queue)
        self.unseen.append(QueueSeen(self.queues[name]))

    def priority_class(self, name: str, value: int, default: bool = False) -> None:
        """A priority class."""
        content = {"metadata": {"name": name}, "value": value, "globalDefault": default}
        self.classes[name] = msgspec.convert(content, PriorityClass)
        self.unseen.append(PriorityClassSeen(self.classes[name]))

    def gang(self, name: str, size: int, min_member: int | None = None, mib: int = 1000, **facts: Any) -> None:
        """A PodGroup with its pods `NAME-0`, `NAME-1`, ..."""
        pods = facts.pop("pods", {})
        self.group(name, size if min_member is None else min_member, **facts)
        for number in range(size):
            self.create(member(f"{name}-{number}", name, mib, **pods))

    def start(self, key: str) -> None:
        """The pod's containers run."""
        self._set_status(key, "", phase="Running")

    def carry_out(self, instruction: Instruction, refuse: bool = False) -> None:
        """Do what the core says, as an API server would."""
        match instruction:
            case ShowGroup(_, key, uid, phase):
                self.shown.append(instruction)
                known = self.groups.get(key)
                if known is not None and known.uid == uid:
                    self._put_group(msgspec.structs.replace(known, phase=phase))
            case ShowQueue():
                self.shown.append(instruction)
            case AskOwner(uid=uid):
                self.core.handle(OwnerSeen(uid, self.owners.get(uid, 1)))
            case MakeGroup(namespace, owner, min_member, queue):
                key = f"{namespace}/podgroup-{owner.uid}"
                if key not in self.groups:
                    uid = f"uid-of-{owner.uid}"
                    self._put_group(Group(words=Words.VOLCANO, key=key, uid=uid, min_member=min_member, queue=queue))
            case Warn(text):
                self.warnings.append(text)
            case _:
                super().carry_out(instruction, refuse)

    def _put_group(self, group: Group) -> None:
        self.groups[group.key] = group
        self.unseen.append(GroupSeen(group))

    def restart(self) -> None:
        """A new core that lists everything."""
        self.core = Core()
        self.unseen = [
            self.configured,
            *(NodeSeen(node) for node in self.nodes.values()),
            *(PodSeen(each) for each in self.pods.values()),
            *(GroupSeen(each) for each in self.groups.values()),
            *(QueueSeen(each) for each in self.queues.values()),
            *(PriorityClassSeen(each) for each in self.classes.values()),
        ]

    def settle(self, until: float | None = None) -> None:
        """Everything is seen and done, pauses included; but no time later than `until` comes."""
        for _ in range(300):
            self.see()
            instructions = self.cycle()
            for instruction in instructions:
                self.carry_out(instruction)
            if not instructions and not self.unseen:
                wake = self.core.wakes_at()
                if wake is None or (until is not None and wake > until):
                    return
                self.now = max(self.now, wake)
        raise AssertionError("the core does not come to rest")

    def bound(self, gang: str) -> int:
        """How many members of a gang have a node."""
        return sum(1 for name in self.placed() if name.startswith(f"{gang}-"))

    def phase(self, gang: str) -> str:
        """How far a group is, as its object says."""
        return self.groups[f"default/{gang}"].phase
