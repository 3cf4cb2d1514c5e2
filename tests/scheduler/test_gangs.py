"""Gangs under random faults: whatever is late, lost or refused, they start whole, and no half goes on for ever."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subak.batch.configuration import DEFAULT, Configuration, Option
from subak.batch.world import Job
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import (
    Bind,
    Evict,
    EvictFailed,
    GroupSeen,
    NodeSeen,
    Nominate,
    PodSeen,
    PriorityClassSeen,
    QueueSeen,
)
from subak.scheduler.record import State
from tests.scheduler.history import Description
from tests.support.fuzz import histories
from tests.support.gangs import QUEUE, GangCluster, member
from tests.support.scheduler import pod

TIERS = (
    (Option("priority"), Option("gang", {"enablePreemptable": False}), Option("conformance")),
    (Option("drf"), Option("predicates"), Option("proportion"), Option("nodeorder"), Option("binpack")),
)
CONFIGURATIONS = {
    "default": DEFAULT,
    "taking": Configuration(("enqueue", "allocate", "preempt", "reclaim", "backfill"), TIERS),
}
NODES = ("n0", "n1")
HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5_000}
ASKS = ({"volcano.sh/gpu-memory": 8_000}, {"volcano.sh/gpu-memory": 3_000}, HAMI, {"volcano.sh/gpu-number": 1})
QUEUES = ("a", "b")

WORDS = st.sampled_from(
    [
        *("gang", "gang", "solo", "plain", "cycle", "cycle", "cycle", "see", "see", "start", "start", "kubelet"),
        *("delete", "user", "finish", "repeat", "late", "queue", "regroup", "wait"),
        *("lose", "lose", "refuse", "refuse", "stay", "half", "restart"),
    ]
)
STEPS = st.lists(st.tuples(WORDS, st.integers(0, 60)), min_size=15, max_size=60)


@dataclass
class Faults:
    """A cluster, and what is known of its evictions."""

    cluster: GangCluster
    evicted: set[str] = field(default_factory=set)
    staying: set[str] = field(default_factory=set)
    old: list[manifest.Pod] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        for name in NODES:
            self.cluster.add_node(Description(device=False).node(name))
        for weight, name in enumerate(QUEUES, 1):
            self.cluster.queue(name, weight=weight)
        for name, value in (("low", 1), ("high", 1000)):
            self.cluster.priority_class(name, value)

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made:02}"

    def step(self, word: str, number: int) -> None:
        cluster = self.cluster
        bound = sorted(key for key, each in cluster.pods.items() if each.spec.node_name and not each.finished)
        going = sorted(key for key, each in cluster.pods.items() if each.metadata.deletion_timestamp is not None)
        everybody = sorted(cluster.pods)
        match word:
            case "gang":
                self.gang(number)
            case "solo":
                annotations = {QUEUE: QUEUES[number % 2]} if number % 3 else {}
                metadata = {"annotations": annotations}
                name, limits = self.name("solo"), ASKS[number % len(ASKS)]
                self.create(member(name, limits=limits, priority=number % 3, metadata=metadata))
            case "plain":
                self.create(pod(self.name("plain"), ASKS[number % len(ASKS)], priority=number % 3 * 500))
            case "see":
                cluster.see(number)
            case "start" if bound:
                cluster.start(bound[number % len(bound)])
            case "finish" if bound:
                cluster.finish(bound[number % len(bound)])
            case "kubelet" if going:
                cluster.delete(going[number % len(going)])
            case "delete" if everybody:
                cluster.delete(everybody[number % len(everybody)])
            case "user" if bound:
                cluster.terminate(bound[number % len(bound)])
            case "repeat" if everybody:
                cluster.unseen.append(PodSeen(cluster.pods[everybody[number % len(everybody)]]))
                cluster.unseen += [GroupSeen(each) for each in cluster.groups.values()]
            case "late" if self.old:
                self.late(self.old[number % len(self.old)])
            case "queue":
                name = QUEUES[number % 2]
                cluster.queue(name, state=("Open", "Closed", "")[number % 3], weight=1 + number % 4)
            case "regroup" if cluster.groups:
                key = sorted(cluster.groups)[number % len(cluster.groups)]
                known = cluster.groups[key]
                name = key.removeprefix("default/")
                cluster.group(name, 1 + number % 4, queue=known.queue, phase=known.phase)
            case "wait":
                cluster.now += number
            case "restart":
                self.restart()
            case "cycle" | "lose" | "refuse" | "stay" | "half":
                self.cycle(word, number)

    def gang(self, number: int) -> None:
        name, size = self.name("gang"), 1 + number % 5
        least = max(1, size - number % 2)
        group = {"queue": (*QUEUES, "", "nowhere")[number % 4], "priority_class": ("", "low", "high")[number % 3]}
        pods = [member(f"{name}-{each}", name, limits=ASKS[(number + each // 3) % len(ASKS)]) for each in range(size)]
        if number % 2:  # the object comes first, or last
            self.cluster.group(name, least, **group)
        for each in pods:
            self.create(each)
        if not number % 2:
            self.cluster.group(name, least, **group)

    def create(self, fresh: manifest.Pod) -> None:
        self.old.append(fresh)
        self.cluster.create(fresh)

    def late(self, old: manifest.Pod) -> None:
        """An event about a pod that is bound in truth, as it was before."""
        now = self.cluster.pods.get(old.key)
        state = self.cluster.core.state(old.key)
        if now is not None and now.spec.node_name and state in (State.HELD, State.ASSUMED):
            self.cluster.core.handle(PodSeen(old))

    def restart(self) -> None:
        self.cluster.restart()
        self.cluster.see()

    def cycle(self, word: str, number: int) -> None:
        cluster = self.cluster
        for i, instruction in enumerate(cluster.cycle()):
            if isinstance(instruction, Evict):
                assert instruction.uid not in self.evicted, "nobody is told twice"
            if word in ("lose", "half") and i == number % 4:
                if word == "half" and isinstance(instruction, Evict):  # it came to the mark, not to the deletion
                    cluster.mark(instruction.key, instruction.uid)
                self.restart()
                return
            if word == "stay" and isinstance(instruction, Evict):
                self.staying.add(instruction.uid)
                cluster.core.handle(EvictFailed(instruction.key, instruction.uid))
                continue
            if isinstance(instruction, Evict):
                self.evicted.add(instruction.uid)
            cluster.carry_out(instruction, refuse=word == "refuse" and i % 3 == number % 3)

    def check(self) -> None:
        """No card carries more than it has, and nobody who waits holds a card, unless a place is kept for him."""
        core = fresh_core(self.cluster, [each for each in self.cluster.pods.values() if each.spec.node_name])
        for node in core.snapshot:
            for card in core.snapshot.cards(node.name):
                assert min(card.memory_free, card.slots_free, card.cores_free) >= 0
        core = self.cluster.core
        for key in core.snapshot.bookings:
            assert core.state(key) in (State.HELD, State.ASSUMED, State.NOMINATED), key

    def come_to_rest(self) -> None:
        """Everything is seen and done, all times are over, and all that must leave has left."""
        for _ in range(100):
            self.cluster.settle()
            self.check()
            if not any(each.metadata.deletion_timestamp is not None for each in self.cluster.pods.values()):
                return
            self.cluster.kubelets()
        raise AssertionError("there is no end of evictions")


def fresh_core(cluster: GangCluster, pods: list[manifest.Pod]) -> Core:
    core = Core()
    core.handle(cluster.configured)
    for node in cluster.nodes.values():
        core.handle(NodeSeen(node))
    for queue in cluster.queues.values():
        core.handle(QueueSeen(queue))
    for each in cluster.classes.values():
        core.handle(PriorityClassSeen(each))
    for group in cluster.groups.values():
        core.handle(GroupSeen(group))
    for one in pods:
        core.handle(PodSeen(one))
    return core


def facts(core: Core) -> dict[str, tuple[object, ...]]:
    """What a core knows of jobs."""
    world = core.batch.world
    return {key: _facts(job) for key, job in world.jobs.items()}


def _facts(job: Job) -> tuple[object, ...]:
    statuses = {task.key: task.status for task in job.tasks.values()}
    tallies = [{name: round(amount) for name, amount in each.items()} for each in (job.held, job.asked)]
    return job.queue, job.min_member, job.priority, statuses, tallies, job.ready_count, job.waiting_count


@pytest.mark.parametrize("name", CONFIGURATIONS)
@histories(quick=8, ci=150)
@given(steps=STEPS)
def test_gangs_start_whole_whatever_goes_wrong(name: str, steps: list[tuple[str, int]]) -> None:
    configuration = CONFIGURATIONS[name]
    faults = Faults(GangCluster(configuration=configuration))
    for word, number in steps:
        faults.step(word, number)
        faults.check()
    faults.come_to_rest()
    cluster = faults.cluster
    assert all(len(nodes) == 1 for nodes in cluster.bindings.values()), "nobody is placed twice"
    unbound = {key for key, each in cluster.pods.items() if not each.spec.node_name and not each.finished}
    assert {cluster.core.state(key) for key in unbound} <= {State.WAITING}
    assert len(cluster.core) == len(unbound), "nobody is lost"
    for job in cluster.core.batch.world.jobs.values():
        assert not job.half_bound, "no half gang outlives its time"
    again = fresh_core(cluster, list(cluster.pods.values()))
    decided = [each for each in again.cycle(cluster.now) if isinstance(each, Bind | Evict | Nominate)]
    assert not decided, "who waits has reason to"
    assert facts(again) == facts(cluster.core), "a new core knows the same"
