"""Drives a scheduler core as the service does, and measures the CPU time of every single event.

The driver plays everybody else: it is the API server that carries out bindings and writes reports down, and the watch
that tells of them a little later.  Its clock is that of a service with one core to itself: it moves by the CPU time
that the scheduler takes, and to whatever comes next while the scheduler is idle.

An event costs what the scheduler takes to handle it and to run one cycle, and the garbage that was collected since the
event before.  If the scheduler wants more cycles, each is of the kind `further cycle`; as in the service, news that
have come meanwhile go first.  So every explanation and every collection is paid for by somebody in the table.
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
"""Seconds until a watch tells of what was written."""

RUNS_AFTER = 0.5
"""Seconds until a bound pod is seen to run."""

START = "start"
PLACED, REFUSED = "arrival, placed", "arrival, waits"
DEPARTURE, WITHDRAWAL = "departure", "withdrawal"
ECHO, FAILED, CYCLE = "echo of a write", "binding refused", "further cycle"

News = Callable[[], Event | None]
"""What a watch tells when its time has come; None if it has nothing to tell any more."""


class Garbage:
    """Seconds spent on garbage collection, by the collector's own account."""

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
        """Listen no more."""
        gc.callbacks.remove(self._hear)


class Told(NamedTuple):
    """What a pod was told last, and when."""

    message: str
    reasons: frozenset[str]
    at: float


class Driver:
    """A core, what is true around it, and what it cost so far.

    `pods` is what the API server stores, `running` the keys of bound pods, `told` the last reason that was written for
    each pod, `told_in` how many were written in each second of the driver's clock.  Of `one_fails_in` bindings the API
    server refuses one; of 0 none.
    """

    def __init__(self, garbage: Garbage) -> None:
        self.core = Core()
        self.now = 1_000_000.0
        self.spent = 0.0
        self.costs: dict[str, array[float]] = {}
        self.counts: Counter[str] = Counter()
        self.pods: dict[str, manifest.Pod] = {}
        self.running: list[str] = []
        self.told: dict[str, Told] = {}
        self.told_in: Counter[int] = Counter()
        self.longest_silence = 0.0
        self.one_fails_in = 0
        self._garbage = garbage
        self._collected = garbage.total
        self._silent_since: dict[str, float] = {}
        self._news: list[tuple[float, int, str, News]] = []
        self._numbers = count()

    def clear(self) -> None:
        """Measure anew; the cluster stays as it is."""
        self.costs.clear()
        self.counts.clear()
        self.told_in.clear()
        self.longest_silence = 0.0
        self._garbage.seconds.clear()
        self._collected = self._garbage.total

    # What happens

    def start(self, events: Iterable[Event]) -> float:
        """Everything is told before the first cycle, as when the service starts; CPU seconds, those cycles included."""
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

    def tell(self, kind: str, event: Event) -> list[Instruction]:
        """One event, and one cycle; what the core wants done is done."""
        began = self._begin()
        self.core.handle(event)
        out = self.core.cycle(self.now, PER_CYCLE)
        self._charge(kind, began)
        self._carry_out(out)
        return out

    def arrive(self, pod: manifest.Pod) -> bool:
        """A pod is created; whether it was placed in the cycle that followed."""
        self.pods[pod.key] = pod
        self._silent_since[pod.key] = self.now
        out = self.tell(PLACED, PodSeen(pod))
        placed = any(isinstance(each, Bind) and each.key == pod.key for each in out)
        if not placed:
            self.costs.setdefault(REFUSED, array("d")).append(self.costs[PLACED].pop())
        return placed

    def depart(self, at: int) -> None:
        """The running pod at this position leaves: every other finishes first, the others are deleted."""
        self.running[at], self.running[-1] = self.running[-1], self.running[at]
        key = self.running.pop()
        pod = self.pods.pop(key)
        self.counts["left"] += 1
        if self.counts["left"] % 2:
            self._later(ECHO_AFTER, ECHO, lambda: PodGone(key))
            self.tell(DEPARTURE, PodSeen(in_phase(pod, "Succeeded")))
        else:
            self.tell(DEPARTURE, PodGone(key))

    def withdraw(self, key: str) -> None:
        """The user deletes a pod that waits."""
        del self.pods[key], self.told[key]
        self._silent_since.pop(key, None)
        self.tell(WITHDRAWAL, PodGone(key))

    def rest(self) -> None:
        """All cycles that the core wants now."""
        while (due := self.core.wakes_at()) is not None and due <= self.now:
            self._cycle()

    def wait(self, until: float) -> None:
        """Time passes, with the news and cycles that fall into it.  If it is later already, only news do."""
        until = max(until, self.now)
        while self._next(until):
            pass
        self.now = max(self.now, until)

    def settle(self, most: float) -> float:
        """Nothing new happens until nothing is left to do, or for so many seconds; the seconds that passed."""
        began = self.now
        while self.now < began + most and self._next(began + most):
            pass
        return self.now - began

    def waiting(self) -> list[str]:
        """The pods that have no node yet, as the API server knows them."""
        return [key for key, pod in self.pods.items() if not pod.spec.node_name]

    # What the core wants done

    def _next(self, until: float) -> bool:
        """Whatever comes next before this moment; whether there was something."""
        wake = self.core.wakes_at()
        cycle = None if wake is None else max(wake, self.now)
        if self._news and self._news[0][0] <= until and (cycle is None or self._news[0][0] <= cycle):
            due, _, kind, news = heapq.heappop(self._news)
            self.now = max(self.now, due)
            event = news()
            if event is not None:
                self.tell(kind, event)
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
        """The moment, set back by the time of the garbage that was collected since the event before."""
        return time.process_time() - (self._garbage.total - self._collected)

    def _charge(self, kind: str, began: float) -> None:
        """Note the cost of what began at this moment."""
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
        self.told.pop(key, None)
        self._later(ECHO_AFTER, ECHO, lambda: self._is_bound(pod))
        self._later(RUNS_AFTER, ECHO, lambda: self._runs(in_phase(pod, "Running")))

    def _report(self, report: Report) -> None:
        """The reason is written into the pod's status, and the watch tells of the pod again."""
        key = report.key
        self.counts["reports"] += 1
        self.told_in[int(self.now)] += 1
        if key not in self.pods:
            return  # it has left meanwhile
        since = self._silent_since.pop(key, None)
        if since is not None:
            self.longest_silence = max(self.longest_silence, self.now - since)
        self.told[key] = Told(report.message, frozenset(report.reasons), self.now)
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
