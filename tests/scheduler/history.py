"""A cluster whose truth is known, told to a core in any order: for properties over random histories.

Truth is which physical card every bound pod is on; what the core is told are objects, whose descriptions of the cards
come, go and change their ids while pods are decided, bound, edited by others, and end.  Changes of one object arrive in
their order, those of different objects in any.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from subak.model import manifest
from subak.model.device import MIB
from subak.scheduler.core import Core, everything
from subak.scheduler.messages import (
    Bind,
    BindFailed,
    DeviceGone,
    DeviceSeen,
    Event,
    Evict,
    Instruction,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    Restore,
)

CARD_MIB = 16_000
CARDS = 2
HAMI_SLOTS = 8

VOLCANO, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"
RATIO, KOORDINATOR_MEMORY = "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"
MTHREADS = {"mthreads.com/vgpu": 1, "mthreads.com/sgpu-memory": 32, "mthreads.com/sgpu-core": 4}
"""Half of a Moore Threads card, which has 64 units of 512 MiB."""

ASKS: tuple[dict[str, Any], ...] = (
    {VOLCANO: 6_000},
    {VOLCANO: 12_000},
    {NUMBER: 1},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12_000},
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 40, "nvidia.com/gpucores": 30},
    {RATIO: 50},
    {KOORDINATOR_MEMORY: "5000Mi"},
    {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3_000},
)
TWO_VENDORS: tuple[dict[str, Any], ...] = (
    {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 9_000, **MTHREADS},
    MTHREADS,
)

CHOSEN_NODE, CHOSEN_CARDS = "hami.io/vgpu-node", "hami.io/vgpu-devices-allocated"

RECORDS = (
    "volcano.sh/gpu-index",
    "subak.io/volcano-gpus",
    "hami.io/vgpu-devices-allocated",
    "scheduling.koordinator.sh/device-allocated",
    "hami.io/mthreads-vgpu-devices-allocated",
)


@dataclass
class Description:
    """What a node's objects say of its cards at the moment."""

    register: bool = True
    volcano: bool = True
    device: bool = True
    names: int = 0
    """How often the cards got other ids."""
    size: int = CARD_MIB
    mthreads: bool = False
    there: bool = True

    def id(self, node: str, index: int) -> str:
        return f"GPU-{node}-{index}" + (f"-{self.names}" if self.names else "")

    def node(self, name: str) -> manifest.Node:
        capacity: dict[str, Any] = {"cpu": "32", "pods": 100, "nvidia.com/gpu": HAMI_SLOTS * CARDS}
        annotations = {}
        if self.volcano:
            capacity |= {VOLCANO: CARDS * self.size, NUMBER: CARDS}
        if self.register:
            cards = [
                {"id": self.id(name, i), "index": i, "count": HAMI_SLOTS, "devmem": self.size, "devcore": 100}
                | {"type": "NVIDIA-A100", "health": True}
                for i in range(CARDS)
            ]
            annotations["hami.io/node-nvidia-register"] = json.dumps(cards)
        if self.mthreads:
            capacity |= {"mthreads.com/sgpu-core": 16, "mthreads.com/sgpu-memory": 64, "mthreads.com/vgpu": 1}
        content = {"metadata": {"name": name, "annotations": annotations}, "status": {"capacity": capacity}}
        return msgspec.convert(content, manifest.Node)

    def device_object(self, name: str) -> manifest.Device:
        devices: list[Any] = [
            {
                **{"type": "gpu", "id": self.id(name, i), "minor": i, "health": True},
                "resources": {
                    "koordinator.sh/gpu-core": 100,
                    KOORDINATOR_MEMORY: f"{self.size}Mi",
                    RATIO: 100,
                },
            }
            for i in range(CARDS)
        ]
        return msgspec.convert({"metadata": {"name": name}, "spec": {"devices": devices}}, manifest.Device)


Card = tuple[str, str, int]
"""A physical card: node, vendor, index."""


@dataclass
class History:
    """The truth, what has not been told yet, and the core."""

    names: tuple[str, ...] = ("n0", "n1")
    core: Core = field(default_factory=Core)
    nodes: dict[str, Description] = field(default_factory=dict)
    pods: dict[str, manifest.Pod] = field(default_factory=dict)
    untold: dict[str, list[Event]] = field(default_factory=dict)
    decided: dict[str, dict[Card, int]] = field(default_factory=dict)
    """By the uid of a pod that we placed: what it takes of which cards, as decided."""
    truth: dict[str, dict[Card, int]] = field(default_factory=dict)
    """By the key of a bound pod: what it takes of which cards, in bytes."""
    written: dict[str, dict[str, str]] = field(default_factory=dict)
    forged: set[str] = field(default_factory=set)
    """Pods on which somebody wrote another record that can be read."""
    may_go: set[str] = field(default_factory=set)
    """Pods that a core may evict."""
    bound: list[str] = field(default_factory=list)
    now: float = 0.0
    made: int = 0
    largest: int = CARD_MIB
    serves: Callable[[manifest.Pod], bool] = everything
    """The pods that cores serve; the first one is given."""

    # What happens

    def describe(self, name: str, **changes: Any) -> None:
        """A node's objects change."""
        known = self.nodes.setdefault(name, Description())
        before = known.device and known.there
        for key, value in changes.items():
            setattr(known, key, value)
        self.largest = max(self.largest, known.size)
        after = known.device and known.there
        self._tell(f"node {name}", NodeSeen(known.node(name)) if known.there else NodeGone(name))
        if after:
            self._tell(f"device {name}", DeviceSeen(known.device_object(name)))
        elif before:
            self._tell(f"device {name}", DeviceGone(name))

    def create(self, ask: dict[str, Any], priority: int = 0, scheduler: str = "") -> str:
        """A user creates a pod."""
        self.made += 1
        content = {
            "metadata": {"name": f"p{self.made}", "namespace": "default", "uid": f"u{self.made}"},
            "spec": {
                "priority": priority,
                "preemptionPolicy": "Never",  # `test_preemptions` is about those who preempt
                "schedulerName": scheduler,
                "containers": [{"name": "c", "resources": {"limits": ask}}],
            },
        }
        raw = msgspec.convert(content, manifest.Pod)
        pod = self.core.interpreter.admit(raw)
        self._put(pod)
        return pod.key

    def end(self, key: str, finished: bool) -> None:
        """A pod is deleted, or finishes first."""
        if finished:
            self._put(msgspec.structs.replace(self.pods[key], status=manifest.PodStatus(phase="Succeeded")))
        del self.pods[key]
        self.truth.pop(key, None)
        if not finished:
            self._tell(f"pod {key}", PodGone(key))

    def steal(self, key: str, name: str, index: int, recorded: bool) -> None:
        """Another scheduler binds a waiting pod to a card that has room for it; the core is told at once."""
        pod = self.pods[key]
        amount = self._amount(pod)
        families = "mthreads" if "mthreads.com/vgpu" in pod.spec.containers[0].limits else "nvidia"
        card = (name, families, 0 if families == "mthreads" else index)
        if amount is None or self.load(card) + amount > min(self._size(card), CARD_MIB * MIB):
            return
        recorded = recorded and VOLCANO in pod.spec.containers[0].limits
        annotations = {"volcano.sh/gpu-index": str(index)} if recorded else {}
        self.truth[key] = {card: amount}
        self._put(_bound(pod, name, annotations))
        self.see(f"pod {key}", everything=True)

    def reserve(self, key: str, name: str, index: int) -> None:
        """Another scheduler records, on a pod that waits, a card that has room; the core is told at once."""
        pod, card = self.pods[key], (name, "nvidia", index)
        amount = self._amount(pod)
        before = self.truth.pop(key, {})
        if amount is None or self.load(card) + amount > self._size(card):
            self.truth[key] = before
            return
        text = f"{self.nodes[name].id(name, index)},NVIDIA,{amount // MIB},0:;"
        self.truth[key] = {card: amount}
        self._put(_annotated(pod, {**pod.annotations, CHOSEN_NODE: name, CHOSEN_CARDS: text}))
        self.see(f"pod {key}", everything=True)

    def withdraw(self, key: str) -> None:
        """It takes that back."""
        pod = self.pods[key]
        self.truth.pop(key, None)
        kept = {name: text for name, text in pod.annotations.items() if name not in (CHOSEN_NODE, CHOSEN_CARDS)}
        self._put(_annotated(pod, kept))

    def follow_up(self, key: str) -> None:
        """It binds the pod to the node that it has recorded."""
        pod = self.pods[key]
        self._put(_bound(pod, pod.annotations[CHOSEN_NODE], {}))

    def edit(self, key: str, text: str | None) -> None:
        """Somebody overwrites or removes the record of a bound pod."""
        pod = self.pods[key]
        found = [each for each in RECORDS if each in pod.annotations]
        if found:
            annotations = {name: value for name, value in pod.annotations.items() if name != found[0]}
            if text is not None:
                annotations[found[0]] = text
            self._put(_annotated(pod, annotations))

    def forge(self, key: str, text: str) -> None:
        """Somebody writes another record that can be read."""
        self.edit(key, text)
        self.forged.add(key)

    def repeat(self, key: str) -> None:
        """The watch says again what is true, or the pod's status has changed."""
        pod = self.pods[key]
        if pod.spec.node_name:
            self._put(msgspec.structs.replace(pod, status=manifest.PodStatus(phase="Running")))

    def see(self, key: str, everything: bool = False) -> None:
        """The core is told the oldest change of an object."""
        events = self.untold.get(key, [])
        while events:
            self.core.handle(events.pop(0))
            if not everything:
                return

    def cycle(self, refuse: bool = False) -> None:
        """The core decides, and what it says is done."""
        self.now += 0.01
        for instruction in self.core.cycle(self.now):
            self.carry_out(instruction, refuse)

    def carry_out(self, instruction: Instruction, refuse: bool = False) -> None:
        """As an API server would; on a server that is slow to tell."""
        if isinstance(instruction, Bind):
            self._bind(instruction, refuse)
        elif isinstance(instruction, Evict):
            self._evict(instruction)
        elif isinstance(instruction, Restore):
            pod = self.pods.get(instruction.key)
            if pod is not None and pod.metadata.uid == instruction.uid:
                merged: dict[str, str | None] = {**pod.annotations, **instruction.annotations}
                self._put(_annotated(pod, {name: text for name, text in merged.items() if text is not None}))

    def _evict(self, evict: Evict) -> None:
        assert evict.key in self.may_go, f"{evict} without two bindings"
        known = self.pods.get(evict.key)
        if known is not None and known.metadata.uid == evict.uid:
            self.end(evict.key, finished=False)

    def _bind(self, bind: Bind, refuse: bool) -> None:
        self.arrive(bind, self.taken_by(bind), refuse)

    def taken_by(self, bind: Bind) -> dict[Card, int]:
        """What the core has decided that the pod takes of which cards."""
        digest = self.core.snapshot.node(bind.node)
        booking = self.core.snapshot.bookings[bind.key]
        assert digest is not None
        taken: dict[Card, int] = {}
        for grant in booking.placement.grants:
            for share in grant.shares:
                device = digest.device(share.id)
                assert device is not None
                card = (bind.node, device.family, device.index)
                taken[card] = taken.get(card, 0) + share.memory_bytes
        return taken

    def arrive(self, bind: Bind, taken: dict[Card, int], refuse: bool = False) -> None:
        """A binding reaches the server."""
        known = self.pods.get(bind.key)
        if refuse or known is None or known.metadata.uid != bind.uid or known.spec.node_name:
            self.core.handle(BindFailed(bind.key, bind.uid, "refused"))
            return
        self.truth[bind.key] = taken
        self.written[bind.key] = bind.annotations
        self.bound.append(bind.uid)
        self._put(_bound(known, bind.node, bind.annotations))

    def settle(self) -> None:
        """Everything is told and done."""
        for _ in range(400):
            for key in list(self.untold):
                self.see(key, everything=True)
            instructions = self.core.cycle(self.now)
            for instruction in instructions:
                self.carry_out(instruction)
            if not instructions and not any(self.untold.values()):
                wake = self.core.wakes_at()
                if wake is None:
                    return
                self.now = max(self.now + 0.01, wake)
        raise AssertionError("the core does not come to rest")

    def restart(self, order: list[int]) -> None:
        """A new core is told all objects in some order.

        The old one puts back first what was forged: whoever begins after a lie has nothing but the lie.
        """
        for key in sorted(self.forged):
            self.see(f"pod {key}", everything=True)
        if self.forged:
            self.cycle()
            self.forged.clear()
        for name, taken in self.truth.items():
            if not self.pods[name].started and any(self.load(card) > self.size_now(card) for card in taken):
                self.may_go.add(name)  # a new core cannot know that the card was larger, and nothing runs yet
        self.core = self.fresh(order)
        self.untold = {}

    def fresh(self, order: list[int], waiting: bool = True) -> Core:
        """A core that was told all objects in some order."""
        events: list[Event] = []
        for name, known in self.nodes.items():
            if known.there:
                events.append(NodeSeen(known.node(name)))
                if known.device:
                    events.append(DeviceSeen(known.device_object(name)))
        events += [PodSeen(pod) for pod in self.pods.values() if waiting or pod.spec.node_name or not self.serves(pod)]
        core = Core(serves=self.serves)
        core.cycle(self.now, 0)
        for number in [*order, *[0] * len(events)]:
            if events:
                core.handle(events.pop(number % len(events)))
        return core

    # What is true

    def load(self, card: Card) -> int:
        """Bytes that bound pods really take of a card."""
        return sum(taken.get(card, 0) for taken in self.truth.values())

    def overcommitted(self) -> list[Card]:
        """Cards of which more is taken than they have."""
        cards = {card for taken in self.truth.values() for card in taken}
        return sorted(card for card in cards if self.load(card) > self._size(card))

    def _size(self, card: Card) -> int:
        """What the card was once said to have at most: pods that came then keep what they got."""
        return (32_768 if card[1] == "mthreads" else self.largest) * MIB

    def size_now(self, card: Card) -> int:
        """What the node says that the card has."""
        node = self.nodes.get(card[0], Description())
        return (32_768 if card[1] == "mthreads" else node.size) * MIB

    def _amount(self, pod: manifest.Pod) -> int | None:
        limits = pod.spec.containers[0].limits
        if VOLCANO in limits:
            return int(str(limits[VOLCANO])) * MIB
        if "nvidia.com/gpumem" in limits and str(limits["nvidia.com/gpu"]) == "1" and "mthreads.com/vgpu" not in limits:
            return int(str(limits["nvidia.com/gpumem"])) * MIB
        return None

    def _put(self, pod: manifest.Pod) -> None:
        self.pods[pod.key] = pod
        self._tell(f"pod {pod.key}", PodSeen(pod))

    def _tell(self, key: str, event: Event) -> None:
        self.untold.setdefault(key, []).append(event)


def _bound(pod: manifest.Pod, node: str, annotations: dict[str, str]) -> manifest.Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(_annotated(pod, {**pod.annotations, **annotations}), spec=spec)


def _annotated(pod: manifest.Pod, annotations: dict[str, str]) -> manifest.Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def ledger(core: Core) -> dict[str, Any]:
    """All that a core has booked, comparable."""
    there = [(node.name, card) for node in core.snapshot for card in core.snapshot.cards(node.name)]
    cards = {
        (name, card.device.id): (card.used, card.slots_free, card.memory_free, card.cores_free) for name, card in there
    }
    tenants = {(name, card.device.id): sorted(card.tenants) for name, card in there}
    booked = {key: booking.placement for key, booking in core.snapshot.bookings.items()}
    return {"cards": cards, "tenants": tenants, "booked": booked, "quotas": core.snapshot.used}
