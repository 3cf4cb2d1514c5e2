"""A cluster on which plans of preemption are sought, without a scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from subak.model import manifest
from subak.model.reason import Refusal
from subak.policy.decider import Decider
from subak.policy.place import place
from subak.policy.preempt import Plan, Preemption, Preemptor


@dataclass
class World:
    """A decider with pods in place, seen as `policy.preempt.Pods`."""

    decider: Decider
    there: dict[str, manifest.Pod] = field(default_factory=dict)
    going: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.preemption = Preemption(self.decider, self)

    def pod(self, key: str) -> manifest.Pod:
        return self.there[key]

    def leaving(self, node: str) -> Collection[str]:
        return self.going.get(node, set())

    def nominated(self, node: str) -> Collection[str]:
        return ()

    def unsettled(self) -> Iterable[str]:
        return self.going

    def add(self, pod: manifest.Pod) -> bool:
        """Place a pod if it fits."""
        try:
            complete = self.decider.interpreter.admit(pod)
            request = self.decider.request(complete)
        except Refusal:
            return False
        placement = place(self.decider.snapshot, request)
        if placement is None:
            return False
        self.decider.assume(pod.key, complete, request, placement)
        self.there[pod.key] = complete
        return True

    def lower(self, priority: int) -> dict[str, list[manifest.Pod]]:
        """Less important pods by node."""
        found: dict[str, list[manifest.Pod]] = {each.name: [] for each in self.decider.snapshot}
        for key, pod in self.there.items():
            if pod.priority < priority:
                found[self.decider.snapshot.bookings[key].placement.node].append(pod)
        return found

    def hold(self, pod: manifest.Pod) -> None:
        """Take in a pod that is bound."""
        node = self.decider.snapshot.node(pod.spec.node_name)
        assert node is not None, f"node {pod.spec.node_name} of pod {pod.key} is there"
        self.decider.hold(pod, node)
        self.there[pod.key] = pod

    def plan(self, pod: manifest.Pod) -> Plan | None:
        """How the pod gets a place."""
        complete = self.decider.interpreter.admit(pod)
        return self.preemption.plan(Preemptor(pod.namespace, self.decider.request(complete), pod.priority))
