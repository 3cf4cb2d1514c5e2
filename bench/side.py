"""One side of `bench churn`: a process that measures the code it imports, a step at a time.

It reads its size as JSON from the first line of standard input.  Each further line asks for one step, and each step is
answered by a line of JSON: what was done, and at the end all that was measured.  So two sides can take turns.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
import time
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec

from bench import load
from bench.driver import ECHO, FAILED, PLACED, REFUSED, TIMER, Driver
from bench.world import World
from subak.model import manifest
from subak.policy.explain import explain
from subak.scheduler.messages import DeviceSeen, Event, NodeGone, NodeSeen, PodSeen

SLICE = 4.0
"""CPU seconds of a turn."""

MIX = {"arrival": 44, "departure": 44, "node change": 4, "device change": 2, "node gone or back": 2, "heartbeat": 4}
"""Of a hundred things that happen."""

DEPARTURE, NODE, DEVICE, COMES, BEAT = "departure", "node change", "device change", "node gone or back", "heartbeat"
OUTSIDE = (PLACED, REFUSED, DEPARTURE, NODE, DEVICE, COMES, BEAT)
INSIDE = (ECHO, FAILED, TIMER)

POINTS = 200
SAMPLE = 50


class Size(msgspec.Struct, frozen=True):
    """How much is measured."""

    nodes: int
    waiting: float
    shapes: int
    rate: float
    seconds: float
    fill_seconds: float
    bound: float
    seed: int
    growth: tuple[int, ...]
    few: int
    many: int


class Side:
    """What is measured, step by step."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.result: dict[str, Any] = {}
        self.chance = random.Random(size.seed)
        self.collections: list[float] = []
        self._collecting = 0.0
        gc.callbacks.append(self._collected)

    def steps(self) -> Iterator[str]:
        """Everything, one turn at a time; yields what is done."""
        self.world = World(self.size.nodes, self.size.shapes, self.size.seed)
        yield f"{len(self.world.running):,} pods on {self.size.nodes:,} nodes"
        yield from self.start()
        yield from self.queue()
        yield from self.churn()
        yield from self.audit()
        del self.world, self.driver
        yield from self.growth()
        yield from self.few_and_many()
        self.result["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    def start(self) -> Iterator[str]:
        """A restart: everything is told at once."""
        self.driver = driver = Driver()
        nodes = driver.load("start", [NodeSeen(node) for node in self.world.nodes])
        devices = driver.load("start", [DeviceSeen(device) for device in self.world.devices])
        pods = driver.load("start", [PodSeen(pod) for pod in self.world.running])
        self.result["start"] = {"nodes": nodes + devices, "pods": pods, "running": len(driver.core.snapshot.bookings)}
        yield f"started in {nodes + devices + pods:.1f} s"

    def queue(self) -> Iterator[str]:
        """Pods come until so many wait."""
        driver, arrivals = self.driver, self.world.arrivals()
        goal, turn = int(self.size.waiting * len(self.world.running)), SLICE
        driver.costs.clear()
        began = driver.spent
        while len(driver.core) < goal and driver.spent - began < self.size.fill_seconds:
            driver.arrive(next(arrivals))
            driver.wait(driver.now + 1 / self.size.rate)
            if driver.spent - began > turn:
                turn += SLICE
                yield f"{len(driver.core):,} of {goal:,} wait"
        driver.settle(self.size.bound)
        self.result["queue"] = {"waiting": len(driver.core), "goal": goal, "cpu": driver.spent - began}
        self.result["queue"]["kinds"] = summaries(driver.costs)
        yield f"{len(driver.core):,} of {goal:,} wait"

    def churn(self) -> Iterator[str]:
        """Pods come and go."""
        driver = self.driver
        driver.costs.clear()
        driver.counts.clear()
        self.collections.clear()
        driver.longest_silence = 0.0
        began, turn, events = driver.spent, SLICE, 0
        for kind, happen in self.happenings():
            if driver.spent - began > self.size.seconds:
                break
            driver.wait(driver.now + 1 / self.size.rate)
            happen()
            events += 1
            if driver.spent - began > turn:
                turn += SLICE
                yield f"{events:,} events, last a {kind}"
        for name in list(self.undo):
            self.undo.pop(name)()
        busy = driver.spent - began
        settled = driver.settle(self.size.bound)
        self.result["churn"] = {
            "events": events,
            "cpu": busy,
            "cpu_with_rest": driver.spent - began,
            "settled": settled,
            "kinds": summaries(driver.costs),
            "all": summary(array("d", [cost for kind in OUTSIDE for cost in driver.costs.get(kind, ())])),
            "counts": dict(driver.counts),
            "silence": driver.longest_silence,
            "collections": {"count": len(self.collections), "worst": max(self.collections, default=0.0)},
        }
        yield f"{events:,} events"

    def happenings(self) -> Iterator[tuple[str, Any]]:
        """What happens: each kind once or twice at first, since a slow side sees few events; then mixed."""
        driver, arrivals, chance = self.driver, self.world.arrivals(), self.chance
        self.undo: dict[str, Any] = {}
        acts = {
            "arrival": lambda: driver.arrive(next(arrivals)),
            "departure": lambda: driver.depart(chance.randrange(len(driver.running))),
            "node change": lambda: self.there_and_back(NODE, self.node_changes),
            "device change": lambda: self.there_and_back(DEVICE, self.device_changes),
            "node gone or back": lambda: self.there_and_back(COMES, self.node_goes),
            "heartbeat": self.heartbeat,
        }
        for kind in (*acts, *acts):
            yield kind, acts[kind]
        while True:
            kind = chance.choices(list(MIX), list(MIX.values()))[0]
            yield kind, acts[kind]

    def there_and_back(self, kind: str, change: Any) -> None:
        """Something changes; the next time it changes back."""
        back = self.undo.pop(kind, None)
        if back is None:
            there, again = change()
            self.undo[kind] = lambda: self.driver.tell(kind, again)
            self.driver.tell(kind, there)
        else:
            back()

    def node_changes(self) -> tuple[Event, Event]:
        """An administrator closes a node, labels it, or takes CPUs from it."""
        node = self.chance.choice(self.world.nodes)
        match self.chance.randrange(3):
            case 0:
                changed = msgspec.structs.replace(node, spec=manifest.NodeSpec(unschedulable=True))
            case 1:
                metadata = msgspec.structs.replace(node.metadata, labels={"zone": "b"})
                changed = msgspec.structs.replace(node, metadata=metadata)
            case _:
                capacity = {**node.capacity, "cpu": "240"}
                changed = msgspec.structs.replace(node, status=manifest.NodeStatus(capacity=capacity))
        return NodeSeen(changed), NodeSeen(node)

    def device_changes(self) -> tuple[Event, Event]:
        """A card falls sick."""
        at = self.chance.randrange(len(self.world.devices))
        return DeviceSeen(load.device(at * 10, sick=self.chance.randrange(load.CARDS))), DeviceSeen(
            load.device(at * 10)
        )

    def node_goes(self) -> tuple[Event, Event]:
        """A node is taken out; its pods stay what they are."""
        node = self.chance.choice(self.world.nodes)
        return NodeGone(node.name), NodeSeen(node)

    def heartbeat(self) -> None:
        """A node says that it lives."""
        node = self.chance.choice(self.world.nodes)
        ready = [manifest.Condition(type="Ready", status="True")]
        beat = msgspec.structs.replace(node, status=manifest.NodeStatus(capacity=node.capacity, conditions=ready))
        self.driver.tell(BEAT, NodeSeen(beat))

    def audit(self) -> Iterator[str]:
        """What the core's own ledger says: who holds cards, and how much of each card is left."""
        driver, core = self.driver, self.driver.core
        there = {key for key, pod in driver.pods.items() if pod.spec.node_name}
        booked = set(core.snapshot.bookings)
        over = [
            f"{node.name}/{card.device.index}"
            for node in core.snapshot
            for card in core.snapshot.cards(node.name)
            if min(card.memory_free, card.cores_free) < 0
        ]
        waiting = driver.waiting()
        untold = [key for key in waiting if key not in driver.told]
        asked = self.chance.sample(waiting, min(SAMPLE, len(waiting)))
        current = 0
        for key in asked:
            why = str(explain(core.snapshot, core.interpreter.request(driver.pods[key])))
            current += driver.told.get(key) == why
        self.result["audit"] = {
            "running": len(booked),
            "lost": len(there - booked),
            "ghosts": len(booked - there),
            "overcommitted": len(over),
            "waiting": len(waiting),
            "in_line": len(core),
            "untold": len(untold),
            "asked": len(asked),
            "current": current,
        }
        yield "ledger read"

    def growth(self) -> Iterator[str]:
        """How the cost of new nodes depends on their number."""
        rows = self.result["growth"] = {}
        for size in self.size.growth:
            nodes = [load.node(number) for number in range(size)]
            seconds = Driver().load("start", [NodeSeen(node) for node in nodes])
            rows[size] = seconds
            yield f"{size:,} nodes in {seconds:.2f} s"

    def few_and_many(self) -> Iterator[str]:
        """The cost of an arrival with few and with many shapes, in turns, on clusters with room."""
        few, many = self.size.few, self.size.many
        drivers: dict[int, tuple[Driver, Iterator[manifest.Pod]]] = {}
        for shapes in (few, many):
            world = World(self.size.nodes, shapes, self.size.seed, pods_per_node=4)
            driver = Driver()
            driver.load("start", [NodeSeen(node) for node in world.nodes])
            driver.load("start", [PodSeen(pod) for pod in world.running])
            drivers[shapes] = driver, world.arrivals()
            yield f"{shapes:,} shapes: {len(world.running):,} pods run"
        for measured in (False, True):
            for _ in range(5):
                for shapes, (driver, arrivals) in drivers.items():
                    began = driver.spent
                    while driver.spent - began < self.size.seconds / 30:
                        driver.arrive(next(arrivals))
                        driver.wait(driver.now + 1 / self.size.rate)
                        driver.depart(self.chance.randrange(len(driver.running)))
                        driver.wait(driver.now + 1 / self.size.rate)
                    yield f"{shapes:,} shapes"
            if not measured:
                for driver, _ in drivers.values():
                    driver.costs.clear()
        self.result["shapes"] = {shapes: summaries(driver.costs) for shapes, (driver, _) in drivers.items()}

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.process_time()
        else:
            self.collections.append(time.process_time() - self._collecting)


def summaries(costs: dict[str, array[float]]) -> dict[str, dict[str, Any]]:
    """Each kind's summary."""
    return {kind: summary(values) for kind, values in costs.items() if values}


def summary(values: array[float]) -> dict[str, Any]:
    """How many, and how much in all, at the usual ranks, and at many ranks for a plot; in seconds."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}

    def rank(part: float) -> float:
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)]

    curve = [rank(1 - 10 ** (-5 * step / POINTS)) for step in range(POINTS)]
    ranks = {"p50": rank(0.5), "p99": rank(0.99), "p999": rank(0.999), "worst": ordered[-1]}
    return {"count": len(ordered), "total": sum(ordered), **ranks, "curve": curve}


def main() -> None:
    """Answer one step for each line."""
    gc.set_threshold(50_000, 20, 100)  # as `subak up`
    side = Side(msgspec.json.decode(sys.stdin.readline(), type=Size))
    steps = side.steps()
    for _ in sys.stdin:
        done = next(steps, None)
        print(json.dumps({"done": done} if done is not None else {"result": side.result}), flush=True)
        if done is None:
            return


if __name__ == "__main__":
    main()
