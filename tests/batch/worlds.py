"""Small worlds for pure tests: nodes, queues, groups and pods in a few words, and a hand that keeps the books.

    world = Stage()
    world.node("n1", cpu=2, memory="4Gi", cards=[16_000])
    world.group("pg1", min_member=2)
    world.pod("p1", "pg1", cpu=1, limits={"volcano.sh/gpu-memory": 4_000})
    session = world.run(SEED)
    assert world.bound == {"p1": "n1"}

Cards are real: a node publishes them as HAMi's, Volcano's and Koordinator's agents do, and pods ask in any dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from subak.batch import gangs
from subak.batch.configuration import DEFAULT, Configuration, Option
from subak.batch.dimensions import Dimensions
from subak.batch.refusals import Refusals
from subak.batch.registry import PLUGINS, run
from subak.batch.session import Session
from subak.batch.world import Job, Phase, Queue, State, Status, Task, World
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.device import MIB
from subak.model.group import Words
from subak.model.node import Node
from subak.model.placement import Placement
from subak.policy.decider import Decider
from subak.policy.preempt import place_on
from tests.support.world import device_object, register

SEED = Configuration(
    ("enqueue", "allocate", "backfill"),
    (
        (Option("priority"), Option("gang"), Option("conformance")),
        (Option("drf"), Option("predicates"), Option("proportion"), Option("nodeorder"), Option("binpack")),
    ),
)
"""The configuration of the seed."""


def configuration(*actions: str, tiers: Sequence[Sequence[str | Option]] = ()) -> Configuration:
    """These actions, and plugins by name, tier by tier."""
    options = tuple(tuple(Option(each) if isinstance(each, str) else each for each in tier) for tier in tiers)
    return Configuration(actions, options)


class Stage:
    """A world, a decider and a hand.  `bound`, `kept` and `evicted` are what sessions have decided so far."""

    def __init__(self) -> None:
        self.decider = Decider(Interpreter())
        self.snapshot = self.decider.snapshot
        self.world = World()
        self.dimensions = Dimensions(self.decider.interpreter, self.snapshot)
        self.bound: dict[str, str] = {}
        self.placements: dict[str, Placement] = {}
        self.kept: dict[str, str] = {}
        self.dropped: list[str] = []
        self.evicted: dict[str, str] = {}
        """Names of victims, and for whom they leave."""
        self.handed: list[tuple[str, str]] = []
        """All that sessions have handed over: what, and about whom."""
        self.refused = Refusals()
        self.now = 0.0
        self._going: dict[str, dict[str, None]] = {}
        self._moments = 0.0

    # What there is

    def node(
        self,
        name: str,
        *,
        cpu: float = 64,
        memory: str = "512Gi",
        pods: int = 110,
        cards: Sequence[int] = (),
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        **scalars: Any,
    ) -> Node:
        """A node with cards of so many MiB each."""
        capacity: dict[str, Any] = {"cpu": str(cpu), "memory": memory, "pods": str(pods), **scalars}
        annotations: dict[str, str] = {}
        device: manifest.Device | None = None
        if cards:
            capacity |= {"nvidia.com/gpu": 10 * len(cards), "volcano.sh/gpu-number": len(cards)}
            capacity["volcano.sh/gpu-memory"] = sum(cards)
            annotations["hami.io/node-nvidia-register"] = register(name, list(cards), count=10)
            device = msgspec.convert(device_object(name, [mib * 1024 for mib in cards]), manifest.Device)
        content = {
            "metadata": {"name": name, "annotations": annotations, "labels": dict(labels or {})},
            "spec": {"taints": list(taints)},
            "status": {"capacity": capacity},
        }
        seen, warnings = self.decider.interpreter.node(msgspec.convert(content, manifest.Node), device)
        assert not warnings, warnings
        return self.add_node(seen)

    def add_node(self, node: Node) -> Node:
        """A node as it is."""
        self.snapshot.put([node])
        return node

    def amounts(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Amounts as users write them; cards that they mean must be there already."""
        found, warnings = self.dimensions.read({name: str(amount) for name, amount in given.items()}, "the test")
        assert not warnings, warnings
        return found

    def queue(self, name: str, **facts: Any) -> Queue:
        """A queue; `capability` and `guarantee` as users write them."""
        for field in ("capability", "guarantee"):
            if field in facts:
                facts[field] = self.amounts(facts[field])
        facts["state"] = State(facts.get("state", "Open"))
        facts.setdefault("created", self._later())
        queue = Queue(name, uid=f"uid-{name}", **facts)
        self.world.put_queue(queue)
        return queue

    def group(self, name: str, min_member: int = 1, **facts: Any) -> Job:
        """Volcano's PodGroup in the namespace `default`; its queue is made if it is not there."""
        if facts.get("min_resources") is not None:
            facts["min_resources"] = self.amounts(facts["min_resources"])
        facts["phase"] = Phase(facts.get("phase", "Pending"))
        facts.setdefault("created", self._later())
        key = gangs.key(Words.VOLCANO, f"default/{name}")
        job = Job(
            key,
            f"default/{name}",
            Words.VOLCANO,
            f"uid-{name}",
            facts.pop("queue", "default"),
            min_member,
            written=True,
            **facts,
        )
        if job.queue not in self.world.queues:
            self.queue(job.queue)
        self.world.put_job(job)
        return job

    def pod(
        self,
        name: str,
        group: str | Job = "",
        *,
        cpu: float | str = 0,
        memory: str | int = 0,
        limits: Mapping[str, Any] | None = None,
        node: str = "",
        status: Status = Status.PENDING,
        selector: Mapping[str, str] | None = None,
        namespace: str = "default",
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> Task:
        """A pod of a group, or by itself; on a node it holds what it asks for, if it has not left already."""
        resources = {"cpu": str(cpu), "memory": str(memory), **(limits or {})}
        asked = {key: amount for key, amount in resources.items() if amount not in ("0", 0)}
        content = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "main", "resources": {"limits": asked}}],
                "nodeSelector": dict(selector or {}),
                "priority": facts.get("priority", 0),
                **(spec or {}),
            },
        }
        return self.add_pod(msgspec.convert(content, manifest.Pod), group, node=node, status=status, **facts)

    def add_pod(
        self,
        pod: manifest.Pod,
        group: str | Job = "",
        *,
        node: str = "",
        status: Status = Status.PENDING,
        **facts: Any,
    ) -> Task:
        """A pod as it is; raises Refusal if it cannot mean anything."""
        pod = self.decider.interpreter.admit(pod)
        request = self.decider.request(pod)
        facts.setdefault("created", self._later())
        facts.setdefault("role", pod.annotations.get(gangs.ROLE, ""))
        task = Task(pod.key, pod, request, self.dimensions.asked(request), status=status, node=node, **facts)
        if node and status not in (Status.SUCCEEDED, Status.FAILED):
            self._settle(task)
        self.world.put_task(group if isinstance(group, Job) else self._job(group, pod, task), task)
        return task

    def _job(self, group: str, pod: manifest.Pod, task: Task) -> Job:
        if group:
            return self.job(group)
        if "default" not in self.world.queues:
            self.queue("default")
        job = Job(gangs.key("", pod.key), pod.key, uid=pod.metadata.uid, priority=task.priority, created=task.created)
        self.world.put_job(job)
        return job

    def _settle(self, task: Task) -> None:
        placement = place_on(self.snapshot, task.node, task.request)
        assert placement is not None, f"{task.key} fits on node {task.node}"
        self.snapshot.assume(task.key, placement, task.request.needs.resources, task.pod)
        task.amounts = self.dimensions.held(task.key) or task.amounts
        if task.status is Status.RELEASING:
            self._going.setdefault(task.node, {})[task.key] = None

    def _later(self) -> float:
        self._moments += 1
        return self._moments

    # What happens

    def run(self, configuration: Configuration = DEFAULT, **more: Any) -> Session:
        """One session."""
        more.setdefault("refused", self.refused)
        return run(self.world, self.decider, configuration, self, self, self.now, **more)

    def session(self, configuration: Configuration = DEFAULT) -> Session:
        """A session in which no action has run: for questions to its plugins."""
        return Session(self.world, self.decider, configuration, PLUGINS, self, self, self.now, self.refused)

    def gone(self, *names: str) -> None:
        """These pods have left."""
        for task in [task for job in self.world.jobs.values() for task in job.tasks.values()]:
            if self.name(task) in names:
                self.snapshot.forget(task.key)
                self._going.get(task.node, {}).pop(task.key, None)
                self.world.remove_task(task)
                self.refused.clear()

    def started(self) -> None:
        """All that was bound runs now."""
        for job in self.world.jobs.values():
            for task in job.tasks.values():
                if task.status is Status.BINDING:
                    self.world.move(task, Status.RUNNING)

    # As what sessions see it: a Hand, and Leaving

    def bind(self, task: Task, placement: Placement) -> None:
        self.handed.append(("bind", self.name(task)))
        self.snapshot.forget(task.key)
        self.snapshot.assume(task.key, placement, task.request.needs.resources, task.pod)
        self.world.move(task, Status.BINDING)
        task.node = placement.node
        self.bound[self.name(task)] = placement.node
        self.placements[self.name(task)] = placement
        self.kept.pop(self.name(task), None)

    def keep(self, task: Task, placement: Placement) -> None:
        self.handed.append(("keep", self.name(task)))
        self.snapshot.restore(task.key, placement, task.request.needs.resources, pod=task.pod)
        self.kept[self.name(task)] = placement.node
        self.placements[self.name(task)] = placement

    def drop(self, task: Task, why: str) -> None:
        self.handed.append(("drop", self.name(task)))
        self.snapshot.forget(task.key)
        self.dropped.append(self.name(task))
        self.kept.pop(self.name(task), None)
        self.placements.pop(self.name(task), None)

    def evict(self, victim: Task, preemptor: Task, event: str) -> None:
        self.handed.append(("evict", self.name(victim)))
        self._going.setdefault(victim.node, {})[victim.key] = None
        self.evicted[self.name(victim)] = self.name(preemptor)

    def leaving(self, node: str) -> Collection[str]:
        return self._going.get(node, {})

    def unsettled(self) -> Iterable[str]:
        return [node for node, keys in self._going.items() if keys]

    @staticmethod
    def name(task: Task) -> str:
        """A pod's name as the test gave it; with its namespace unless that is `default`."""
        return task.key.removeprefix("default/")

    def job(self, group: str) -> Job:
        """The job of a group."""
        return self.world.jobs[gangs.key(Words.VOLCANO, f"default/{group}")]

    def task(self, name: str) -> Task:
        """The task of a pod, by the name that the test gave it."""
        tasks = (task for job in self.world.jobs.values() for task in job.tasks.values())
        return next(task for task in tasks if self.name(task) == name)

    def phases(self) -> dict[str, str]:
        """How far each group is."""
        return {job.name.removeprefix("default/"): job.phase.value for job in self.world.jobs.values()}

    def cards(self) -> dict[str, dict[int, int]]:
        """For each node, how many MiB of which card are taken."""
        return {
            node.name: {card.device.index: card.memory_used // MIB for card in self.snapshot.cards(node.name)}
            for node in self.snapshot
        }
