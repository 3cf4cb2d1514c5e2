"""Drives a scheduler core as the service does, and measures the CPU time of every single event.

The driver plays all other parts: the API server that carries out bindings and stores reports, and the watch that
delivers them a little later.  Its clock is that of a service with a CPU core to itself: it moves by the CPU time that
the scheduler takes, and jumps to the next event while the scheduler is idle.

An event costs the time to handle it and to run one cycle, and the garbage collection since the event before.  If the
scheduler wants more cycles, each counts as `further cycle`; as in the service, events go before further cycles.
So the table contains the cost of every explanation and every collection.
"""

from __future__ import annotations

import gc
import heapq
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from bench.world import bound, in_phase
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, BindFailed, Event, Instruction, PodGone, PodSeen, Report
from subak.scheduler.service import PER_CYCLE

ECHO_AFTER = 0.005
"""Seconds until a watch delivers a write."""

RUNS_AFTER = 0.5
"""Seconds until a bound pod is seen to run."""

START = "start"
PLACED, REFUSED = "arrival, placed", "arrival, waits"
DEPARTURE, WITHDRAWAL = "departure", "withdrawal"
ECHO, FAILED, CYCLE = "echo of a write", "binding refused", "further cycle"

News = Callable[[], Event | None]
"""Gives the event that a watch delivers when its time has come; None if it is no longer due."""


class Garbage:
    """Seconds spent on garbage collection, measured in the collector's callbacks."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.total = 0.0
        self._began = 0.0
        gc.callbacks.append(self._hear)

    def _hear(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.process_time()
        else:
            self.seconds.append(time.process_time() - self._began)
            self.total += self.seconds[-1]

    def stop(self) -> None:
        """Stop measuring."""
        gc.callbacks.remove(self._hear)


class Reported(NamedTuple):
    """The last report of a pod, and its time."""

    message: str
    reasons: frozenset[str]
    at: float


class Driver:
    """A core, the true state around it, and its costs so far.

    `pods` is what the API server stores, `running` the keys of bound pods, `reported` the last report of each pod,
    `reports_in` the number of reports in each second of the driver's clock.  The API server refuses one in
    `one_fails_in` bindings; none if it is 0.
    """

    def __init__(self, garbage: Garbage) -> None:
        self.core = Core()
        self.now = 1_000_000.0
        self.spent = 0.0
        self.costs: dict[str, array[float]] = {}
        self.counts: Counter[str] = Counter()
        self.pods: dict[str, manifest.Pod] = {}
        self.running: list[str] = []
        self.reported: dict[str, Reported] = {}
        self.reports_in: Counter[int] = Counter()
        self.longest_silence = 0.0
        self.one_fails_in = 0
        self._garbage = garbage
        self._collected = garbage.total
        self._silent_since: dict[str, float] = {}
        self._news: list[tuple[float, int, str, News]] = []
        self._numbers = count()

    def clear(self) -> None:
        """Forget the measurements; the cluster stays as it is."""
        self.costs.clear()
        self.counts.clear()
        self.reports_in.clear()
        self.longest_silence = 0.0
        self._garbage.seconds.clear()
        self._collected = self._garbage.total

    # What happens

    def start(self, events: Iterable[Event]) -> float:
        """Deliver all events before the first cycle, as when the service starts; gives CPU seconds with the cycles."""
        before = self.spent
        for event in events:
            began = self._begin()
            self.core.handle(event)
            self._charge(START, began)
            if isinstance(event, PodSeen):
                self.pods[event.pod.key] = event.pod
                self.running.append(event.pod.key)
        self.rest()
        gc.freeze()  # as the service
        return self.spent - before

    def deliver(self, kind: str, event: Event) -> list[Instruction]:
        """Deliver one event, run one cycle, and carry out the instructions."""
        began = self._begin()
        self.core.handle(event)
        out = self.core.cycle(self.now, PER_CYCLE)
        self._charge(kind, began)
        self._carry_out(out)
        return out

    def arrive(self, pod: manifest.Pod) -> bool:
        """Create a pod; True if the next cycle placed it."""
        self.pods[pod.key] = pod
        self._silent_since[pod.key] = self.now
        out = self.deliver(PLACED, PodSeen(pod))
        placed = any(isinstance(each, Bind) and each.key == pod.key for each in out)
        if not placed:
            self.costs.setdefault(REFUSED, array("d")).append(self.costs[PLACED].pop())
        return placed

    def depart(self, at: int) -> None:
        """Remove the running pod at this position: every second one finishes first, the others are deleted."""
        self.running[at], self.running[-1] = self.running[-1], self.running[at]
        key = self.running.pop()
        pod = self.pods.pop(key)
        self.counts["left"] += 1
        if self.counts["left"] % 2:
            self._later(ECHO_AFTER, ECHO, lambda: PodGone(key))
            self.deliver(DEPARTURE, PodSeen(in_phase(pod, "Succeeded")))
        else:
            self.deliver(DEPARTURE, PodGone(key))

    def withdraw(self, key: str) -> None:
        """Delete a pod that waits."""
        del self.pods[key], self.reported[key]
        self._silent_since.pop(key, None)
        self.deliver(WITHDRAWAL, PodGone(key))

    def rest(self) -> None:
        """Run all cycles that the core wants now."""
        while (due := self.core.wakes_at()) is not None and due <= self.now:
            self._cycle()

    def wait(self, until: float) -> None:
        """Let time pass, with the events and cycles that fall into it.  If it is later already, only with events."""
        until = max(until, self.now)
        while self._next(until):
            pass
        self.now = max(self.now, until)

    def settle(self, most: float) -> float:
        """Wait until nothing is left to do, for so many seconds at most; gives the seconds that passed."""
        began = self.now
        while self.now < began + most and self._next(began + most):
            pass
        return self.now - began

    def waiting(self) -> list[str]:
        """The pods in the API server that have no node yet."""
        return [key for key, pod in self.pods.items() if not pod.spec.node_name]

    # What the core wants done

    def _next(self, until: float) -> bool:
        """Process the next event or cycle before this moment; False if there is none."""
        wake = self.core.wakes_at()
        cycle = None if wake is None else max(wake, self.now)
        if self._news and self._news[0][0] <= until and (cycle is None or self._news[0][0] <= cycle):
            due, _, kind, news = heapq.heappop(self._news)
            self.now = max(self.now, due)
            event = news()
            if event is not None:
                self.deliver(kind, event)
            return True
        if cycle is None or cycle >= until:
            return False
        self.now = cycle
        self._cycle()
        return True

    def _cycle(self) -> None:
        began = self._begin()
        out = self.core.cycle(self.now, PER_CYCLE)
        self._charge(CYCLE, began)
        self._carry_out(out)

    def _begin(self) -> float:
        """The current CPU time, less the garbage collection since the event before."""
        return time.process_time() - (self._garbage.total - self._collected)

    def _charge(self, kind: str, began: float) -> None:
        """Note the cost of an event that began at this time."""
        seconds = time.process_time() - began
        self._collected = self._garbage.total
        self.costs.setdefault(kind, array("d")).append(seconds)
        self.spent += seconds
        self.now += seconds

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Bind():
                    self._bind(instruction)
                case Report():
                    self._report(instruction)
                case _:
                    self.counts[type(instruction).__name__] += 1

    def _bind(self, bind: Bind) -> None:
        self.counts["bindings"] += 1
        key = bind.key
        if self.one_fails_in and not self.counts["bindings"] % self.one_fails_in:
            failed = BindFailed(key, bind.uid, "refused")
            self._later(ECHO_AFTER, FAILED, lambda: failed if key in self.pods else None)
            return
        pod = self.pods[key] = bound(self.pods[key], bind.node, bind.annotations)
        self._silent_since.pop(key, None)
        self.reported.pop(key, None)
        self._later(ECHO_AFTER, ECHO, lambda: self._is_bound(pod))
        self._later(RUNS_AFTER, ECHO, lambda: self._runs(in_phase(pod, "Running")))

    def _report(self, report: Report) -> None:
        """Write the reason into the pod's status, and let the watch deliver the pod again."""
        key = report.key
        self.counts["reports"] += 1
        self.reports_in[int(self.now)] += 1
        if key not in self.pods:
            return  # it has left meanwhile
        since = self._silent_since.pop(key, None)
        if since is not None:
            self.longest_silence = max(self.longest_silence, self.now - since)
        self.reported[key] = Reported(report.message, frozenset(report.reasons), self.now)
        self._later(ECHO_AFTER, ECHO, lambda: PodSeen(self.pods[key]) if key in self.pods else None)

    def _is_bound(self, pod: manifest.Pod) -> Event:
        self.running.append(pod.key)
        return PodSeen(pod)

    def _runs(self, pod: manifest.Pod) -> Event | None:
        if pod.key not in self.pods:
            return None  # it has left
        self.pods[pod.key] = pod
        return PodSeen(pod)

    def _later(self, seconds: float, kind: str, news: News) -> None:
        heapq.heappush(self._news, (self.now + seconds, next(self._numbers), kind, news))
