"""Preemption under random faults: whatever is late, lost or refused, nobody leaves in vain, and nobody twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, Evict, EvictFailed, Instruction, NodeSeen, Nominate, PodSeen
from subak.scheduler.record import State
from tests.scheduler.history import ASKS, VOLCANO, Description
from tests.support.fuzz import histories
from tests.support.scheduler import Cluster, pod

NODES = ("n0", "n1")
HAMI = {"nvidia.com/gpu": 1}
MIXED = tuple(ask for ask in ASKS if not any("koordinator" in name for name in ask))
"""HAMi's and Volcano's ways to ask for the same cards."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("create", "create", "create", "cycle", "cycle", "cycle", "see", "see", "kubelet", "kubelet"),
                *("delete", "user", "half", "lose", "refuse", "stay", "restart"),
            ]
        ),
        st.integers(0, 30),
    ),
    min_size=15,
    max_size=60,
)


@dataclass
class Faults:
    """A cluster, and what is known of its evictions."""

    cluster: Cluster = field(default_factory=Cluster)
    evicted: set[str] = field(default_factory=set)
    staying: set[str] = field(default_factory=set)
    priorities: dict[str, int] = field(default_factory=dict)
    """Of everybody there ever was: the core may decide for a pod whose deletion it has not seen yet."""

    def __post_init__(self) -> None:
        for name in NODES:
            self.cluster.add_node(Description(device=False).node(name))
        for number, priority in enumerate((0, 1, 2, 0, 1, 0, 2, 1)):  # two on each card
            self.create({VOLCANO: 6_000} if number % 3 else {**HAMI, "nvidia.com/gpumem": 7_000}, priority)
        self.cluster.settle()

    def create(self, limits: dict[str, Any], priority: int) -> None:
        made = pod(f"p{len(self.priorities) + 1:02}", limits, priority=priority)
        self.priorities[made.key] = priority
        self.cluster.create(made)

    def step(self, word: str, number: int) -> None:
        cluster = self.cluster
        bound = sorted(key for key, each in cluster.pods.items() if each.spec.node_name)
        going = sorted(key for key, each in cluster.pods.items() if each.metadata.deletion_timestamp is not None)
        match word:
            case "create":
                self.create(MIXED[number % len(MIXED)], number % 4)
            case "see":
                cluster.see(number)
            case "kubelet" if going:
                cluster.delete(going[number % len(going)])
            case "delete" if cluster.pods:
                cluster.delete(sorted(cluster.pods)[number % len(cluster.pods)])
            case "user" if bound:
                cluster.terminate(bound[number % len(bound)])
            case "restart":
                self.restart()
            case "cycle" | "lose" | "refuse" | "stay" | "half":
                self.cycle(word, number)

    def restart(self) -> None:
        self.cluster.restart()
        self.cluster.see()

    def cycle(self, word: str, number: int) -> None:
        instructions = self.cluster.cycle()
        self.check_future(instructions)
        for i, instruction in enumerate(instructions):
            if isinstance(instruction, Evict):
                self.check_evict(instruction)
            if isinstance(instruction, Nominate) and not instruction.node:
                self.check_withdrawal(instruction)
            if word in ("lose", "half") and i == number % 4:
                if word == "half" and isinstance(instruction, Evict):  # it came to the mark, not to the deletion
                    self.cluster.mark(instruction.key, instruction.uid)
                self.restart()
                return
            if word == "stay" and isinstance(instruction, Evict):
                self.staying.add(instruction.uid)
                self.cluster.core.handle(EvictFailed(instruction.key, instruction.uid))
                continue
            if isinstance(instruction, Evict):
                self.evicted.add(instruction.uid)
            self.cluster.carry_out(instruction, refuse=word == "refuse" and i % 3 == number % 3)

    def check_evict(self, evict: Evict) -> None:
        """Somebody more important needs the place, and nobody is told twice."""
        victim = self.cluster.pods.get(evict.key)
        assert evict.uid not in self.evicted
        by = {each.metadata.uid: each for each in self.cluster.pods.values()}
        preemptor = by.get(evict.message.removeprefix("Preempted by pod ").partition(" ")[0])
        if victim is not None and preemptor is not None:
            assert victim.priority < preemptor.priority

    def check_withdrawal(self, nominate: Nominate) -> None:
        """Only a more important pod, or a victim that stays, takes a place away."""
        loser = self.cluster.pods.get(nominate.key)
        if loser is not None and loser.status.nominated_node_name and not self.staying:
            there = self.cluster.core.snapshot.bookings.items()
            on_node = [key for key, held in there if held.placement.node == loser.status.nominated_node_name]
            assert any(self.priorities[key] > loser.priority for key in on_node)

    def check_future(self, instructions: list[Instruction]) -> None:
        """Once all that leave are gone, everybody who is booked has room: also those who wait for it."""
        core = self.cluster.core
        leaving = {each.key for each in instructions if isinstance(each, Evict)} | {
            key
            for key, each in self.cluster.pods.items()
            if each.metadata.uid in self.evicted - self.staying
            or each.preempted
            or each.metadata.deletion_timestamp is not None
        }
        for node in core.snapshot:
            for card in core.snapshot.cards(node.name):
                gone = [
                    charge for key, charge in card.tenants.items() if key in leaving or key not in self.cluster.pods
                ]
                assert card.memory_free + sum(each.memory_bytes for each in gone) >= 0
                assert card.slots_free + sum(each.slots for each in gone) >= 0
                assert card.cores_free + sum(each.cores for each in gone) >= 0

    def check_present(self) -> None:
        """No card carries more than it has, by what is really bound."""
        core = fresh_core(self.cluster, [each for each in self.cluster.pods.values() if each.spec.node_name])
        for node in core.snapshot:
            for card in core.snapshot.cards(node.name):
                assert min(card.memory_free, card.slots_free, card.cores_free) >= 0

    def come_to_rest(self) -> None:
        """Everything is seen and done, and all that must leave has left."""
        for _ in range(100):
            self.cluster.settle()
            self.check_present()
            if not any(each.metadata.deletion_timestamp is not None for each in self.cluster.pods.values()):
                return
            self.cluster.kubelets()
        raise AssertionError("there is no end of evictions")


def fresh_core(cluster: Cluster, pods: list[manifest.Pod]) -> Core:
    core = Core()
    for node in cluster.nodes.values():
        core.handle(NodeSeen(node))
    for each in pods:
        core.handle(PodSeen(each))
    return core


@histories(quick=8, ci=500)
@given(steps=STEPS)
def test_nobody_leaves_in_vain_or_twice_and_no_card_is_overcommitted(steps: list[tuple[str, int]]) -> None:
    faults = Faults()
    for word, number in steps:
        faults.step(word, number)
        faults.check_present()
    faults.come_to_rest()
    cluster = faults.cluster
    assert all(len(nodes) == 1 for nodes in cluster.bindings.values()), "nobody is placed twice"
    waiting = {key for key, each in cluster.pods.items() if not each.spec.node_name}
    assert len(cluster.core) == len(waiting), "nobody is lost"
    assert {cluster.core.state(key) for key in waiting} <= {State.WAITING}
    again = fresh_core(cluster, list(cluster.pods.values())).cycle(0.0)
    assert not [each for each in again if isinstance(each, Bind | Evict | Nominate)], "who waits has reason to"
