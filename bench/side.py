"""One side of `bench churn`: a process that measures the code it imports, a turn at a time.

The first line of standard input says how much to measure, as JSON.  Each further line asks for one turn, and the answer
is one line: progress, or at the end all measurements.  So several sides can take turns.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
from array import array
from collections.abc import Iterator

import msgspec

from bench import ledger, load
from bench.driver import Driver, Garbage
from bench.happenings import MIX, OUTSIDE, Happenings
from bench.samples import Samples, summaries, summary
from bench.world import World
from subak.model import manifest
from subak.scheduler.messages import DeviceSeen, Event, NodeSeen, PodSeen

TURN = 4.0
"""CPU seconds, roughly."""

ONE_FAILS_IN = 200
ROUNDS = 5
STRANGERS = 20
"""How many pods wait, and fit nowhere, while nodes join."""


class Size(msgspec.Struct, frozen=True):
    """How much to measure: the options of `bench churn`."""

    nodes: int
    waiting: float
    shapes: int
    rate: float
    seconds: float
    fill_seconds: float
    bound: float
    growth: tuple[int, ...]
    few: int
    many: int
    seed: int


class Result(msgspec.Struct):
    """All measurements.  Times are CPU seconds; `behind`, `reported_after` and `settled` use the driver's clock."""

    nodes_seconds: float = 0.0
    pods_seconds: float = 0.0
    running: int = 0
    waiting: int = 0
    wanted: int = 0
    fill: float = 0.0
    alone: dict[str, Samples] = {}
    events: int = 0
    busy: float = 0.0
    behind: float = 0.0
    flood: int = 0
    flooded: float = 0.0
    settled: float = 0.0
    left: int = 0
    reports: int = 0
    most_reports: int = 0
    reported_after: float = 0.0
    collections: int = 0
    longest_collection: float = 0.0
    any: Samples | None = None
    kinds: dict[str, Samples] = {}
    ledger: ledger.Ledger | None = None
    growth: dict[int, float] = {}
    joins: Samples | None = None
    arrivals: dict[int, dict[str, Samples]] = {}
    memory_mib: int = 0


class Answer(msgspec.Struct, frozen=True):
    """The result of a turn: progress, or all measurements."""

    done: str = ""
    result: Result | None = None


class Side:
    """The measurements, turn by turn."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.result = Result()
        self.garbage = Garbage()
        self.world = World(size.nodes, size.shapes, size.seed)
        self.driver = Driver(self.garbage)
        self.happenings = Happenings(self.driver, self.world, size.seed)

    def turns(self) -> Iterator[str]:
        """Measure everything; yields the progress after each turn."""
        for part in (self.start, self.fill, self.quiet, self.churn, self.flood):
            yield from part()
        del self.world, self.driver, self.happenings  # the next measurements build other clusters
        gc.collect()
        for part in (self.grow, self.join, self.compare_shapes):
            yield from part()
        self.result.memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.garbage.stop()

    def start(self) -> Iterator[str]:
        """A restart: all nodes, then all pods."""
        world, driver, result = self.world, self.driver, self.result
        nodes: list[Event] = [NodeSeen(node) for node in world.nodes]
        result.nodes_seconds = driver.start([*nodes, *(DeviceSeen(device) for device in world.devices.values())])
        yield f"{len(world.nodes):,} nodes told in {result.nodes_seconds:.1f} s"
        result.pods_seconds = driver.start(PodSeen(pod) for pod in world.running)
        result.running = len(driver.core.snapshot.bookings)
        yield f"{result.running:,} pods told in {result.pods_seconds:.1f} s"

    def fill(self) -> Iterator[str]:
        """Pods come until so many wait."""
        driver, result, arrivals = self.driver, self.result, self.world.arrivals()
        result.wanted = int(self.size.waiting * result.running)
        began, turn = driver.spent, TURN
        while len(driver.core) < result.wanted and driver.spent - began < self.size.fill_seconds:
            driver.arrive(next(arrivals))
            driver.rest()
            driver.wait(driver.now + 1 / self.size.rate)
            if driver.spent - began > turn:
                turn += TURN
                yield f"{len(driver.core):,} of {result.wanted:,} pods wait"
        driver.settle(self.size.bound)
        result.waiting, result.fill = len(driver.core), driver.spent - began
        yield f"{result.waiting:,} pods wait after {result.fill:.1f} s"

    def quiet(self) -> Iterator[str]:
        """One event after the other, each with all its consequences until nothing is left to do."""
        driver, number = self.driver, 0
        costs: dict[str, array[float]] = {}
        driver.clear()
        began, before, turn = driver.spent, 0.0, TURN
        for number, kind in enumerate(self.happenings, 1):
            driver.settle(self.size.fill_seconds)
            used = driver.spent - began
            costs.setdefault(kind, array("d")).append(used - before)
            before = used
            if used > (self.size.seconds / 4 if number >= len(MIX) else self.size.fill_seconds):
                break  # a slow side sees each kind once
            if used > turn:
                turn = used + TURN
                yield f"{number:,} single events, the last: {kind}"
        self.result.alone = summaries(costs)
        yield f"{number:,} single events in {driver.spent - began:.1f} s"

    def churn(self) -> Iterator[str]:
        """Pods come and go, nodes and devices change, at a given rate; then the ledger is checked."""
        driver, result = self.driver, self.result
        driver.clear()
        driver.one_fails_in = ONE_FAILS_IN
        began, turn, due = driver.spent, TURN, driver.now
        for kind in self.happenings:
            result.events += 1
            due += 1 / self.size.rate
            driver.wait(due)
            result.busy = driver.spent - began
            if result.busy > self.size.seconds:
                break
            if result.busy > turn:
                turn = result.busy + TURN
                yield f"{result.events:,} events, the last: {kind}"
        result.behind = driver.now - due
        self.happenings.undo()
        result.settled = driver.settle(self.size.bound)
        yield f"{result.events:,} events in {result.busy:.1f} s"
        result.left, result.reports = driver.counts["left"], driver.counts["reports"]
        result.most_reports, result.reported_after = max(driver.reports_in.values(), default=0), driver.longest_silence
        result.collections = len(self.garbage.seconds)
        result.longest_collection = max(self.garbage.seconds, default=0.0)
        result.kinds = summaries(driver.costs)
        result.any = summary(array("d", [cost for kind in OUTSIDE for cost in driver.costs.get(kind, ())]))
        result.ledger = ledger.read(driver, self.size.seed)
        yield str(result.ledger)

    def flood(self) -> Iterator[str]:
        """The same without pauses: the next event is always there."""
        driver, result = self.driver, self.result
        began, turn = driver.spent, TURN
        for kind in self.happenings:
            result.flood += 1
            driver.wait(driver.now)
            result.flooded = driver.spent - began
            if result.flooded > self.size.seconds / 4:
                break
            if result.flooded > turn:
                turn = result.flooded + TURN
                yield f"{result.flood:,} events in a flood, the last: {kind}"
        yield f"{result.flood:,} events in a flood in {result.flooded:.1f} s"

    def grow(self) -> Iterator[str]:
        """How the cost of a start depends on the number of nodes."""
        for size in self.size.growth:
            events = [NodeSeen(load.node(number)) for number in range(size)]
            self.result.growth[size] = Driver(self.garbage).start(events)
            yield f"{size:,} nodes told in {self.result.growth[size]:.2f} s"

    def join(self) -> Iterator[str]:
        """Nodes join one by one while pods wait that fit on none of them."""
        driver, costs = Driver(self.garbage), array("d")
        for number, shape in enumerate(load.too_large(STRANGERS)):
            driver.arrive(driver.core.interpreter.admit(load.pod(f"stranger-{number}", shape)))
        turn = TURN
        for number in range(self.size.nodes):
            before = driver.spent
            driver.deliver("join", NodeSeen(load.node(number)))
            driver.rest()
            costs.append(driver.spent - before)
            if driver.spent > self.size.seconds / 4:
                break
            if driver.spent > turn:
                turn += TURN
                yield f"{number + 1:,} nodes joined"
        self.result.joins = summary(costs)
        yield f"{self.result.joins.count:,} nodes joined in {driver.spent:.1f} s"

    def compare_shapes(self) -> Iterator[str]:
        """The cost of an arrival with few and with many shapes, in turns, on clusters with room."""
        sides: dict[int, tuple[Driver, World]] = {}
        for shapes in (self.size.few, self.size.many):
            world, driver = World(self.size.nodes, shapes, self.size.seed, pods_per_node=4), Driver(self.garbage)
            driver.start([*(NodeSeen(node) for node in world.nodes), *(PodSeen(pod) for pod in world.running)])
            sides[shapes] = driver, world
            yield f"{shapes:,} shapes: {len(world.running):,} pods run"
            self._come_and_go(driver, map(world.pod, world.kinds), self.size.fill_seconds)
            driver.clear()  # each shape has come once, so all caches per shape are filled
            yield f"{shapes:,} shapes: each has come once"
        seconds = self.size.seconds / 4 / len(sides) / ROUNDS
        for number in range(ROUNDS):
            for shapes, (driver, world) in sides.items():
                self._come_and_go(driver, world.arrivals(), seconds)
                yield f"{shapes:,} shapes: round {number + 1}"
        self.result.arrivals = {shapes: summaries(driver.costs) for shapes, (driver, _) in sides.items()}

    def _come_and_go(self, driver: Driver, arrivals: Iterator[manifest.Pod], seconds: float) -> None:
        chance, began = random.Random(self.size.seed), driver.spent
        for pod in arrivals:
            driver.arrive(pod)
            driver.rest()
            driver.wait(driver.now + 1 / self.size.rate)
            driver.depart(chance.randrange(len(driver.running)))
            driver.rest()
            driver.wait(driver.now + 1 / self.size.rate)
            if driver.spent - began > seconds:
                return


def main() -> None:
    """Answer each line with one turn."""
    gc.set_threshold(50_000, 20, 100)  # as `subak up`
    side = Side(msgspec.json.decode(sys.stdin.readline(), type=Size))
    turns = side.turns()
    for _ in sys.stdin:
        done = next(turns, None)
        answer = Answer(result=side.result) if done is None else Answer(done)
        print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
