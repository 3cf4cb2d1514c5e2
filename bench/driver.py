"""Drives a scheduler core as the service does, and measures the CPU time of every single event.

The driver plays everybody else: it is the API server that carries out bindings and writes reports down, and the watch
that tells of them a little later.  Its clock is that of a service with one core to itself: it moves by the CPU time
that the core takes, and to whatever comes next while the core is idle.

An event costs what the core takes to handle it and to run all cycles that are due at once; cycles that the core asks
for at a later time are the kind `timer`.  So every explanation is paid for by somebody in the table.
"""

from __future__ import annotations

import heapq
import time
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import count

from bench.world import bound, in_phase
from subak.model import manifest
from subak.scheduler.core import Core
from subak.scheduler.messages import Bind, BindFailed, Event, Instruction, PodGone, PodSeen, Report

PER_CYCLE = 16
"""As the service."""

ECHO_AFTER = 0.005
"""Seconds until a watch tells of what was written."""

RUNS_AFTER = 0.5
ONE_FAILS_IN = 200
"""Of so many bindings one is refused."""

MOST_CYCLES = 100_000

TIMER, ECHO, FAILED = "timer", "echo", "binding refused"
PLACED, REFUSED = "arrival, placed", "arrival, refused"


class Driver:
    """A core, what is true around it, and what it cost so far."""

    def __init__(self, core: Core | None = None) -> None:
        self.core = core or Core()
        self.now = 1_000_000.0
        self.spent = 0.0
        self.costs: dict[str, array[float]] = {}
        self.counts: Counter[str] = Counter()
        self.pods: dict[str, manifest.Pod] = {}
        self.running: list[str] = []
        self.told: dict[str, str] = {}
        self.longest_silence = 0.0
        self._arrived: dict[str, float] = {}
        self._echoes: list[tuple[float, int, str, Callable[[], Event | None]]] = []
        self._numbers = count()

    # What happens

    def tell(self, kind: str, event: Event) -> list[Instruction]:
        """One event and all that is due because of it; what the core wants done is done."""
        began, now = time.process_time(), self.now
        self.core.handle(event)
        out = self.core.cycle(now, PER_CYCLE)
        cycles = 1
        while (due := self.core.wakes_at()) is not None and due <= now:
            out += self.core.cycle(now + time.process_time() - began, PER_CYCLE)
            cycles += 1
            if cycles > MOST_CYCLES:
                raise RuntimeError(f"the core does not come to rest after {event}")
        self._charge(kind, time.process_time() - began)
        self._do(out)
        return out

    def load(self, kind: str, events: list[Event]) -> float:
        """Events without a cycle between them, as when the service starts; CPU seconds, the first cycles included."""
        before = self.spent
        for event in events:
            began = time.process_time()
            self.core.handle(event)
            self._charge(kind, time.process_time() - began)
            if isinstance(event, PodSeen):
                self.pods[event.pod.key] = event.pod
                self.running.append(event.pod.key)
        while (due := self.core.wakes_at()) is not None and due <= self.now:
            self._cycle()
        return self.spent - before

    def arrive(self, pod: manifest.Pod) -> bool:
        """A pod is created; whether it was placed at once."""
        self.pods[pod.key] = pod
        self._arrived[pod.key] = self.now
        out = self.tell(PLACED, PodSeen(pod))
        placed = any(isinstance(each, Bind) and each.key == pod.key for each in out)
        if not placed:
            self.costs.setdefault(REFUSED, array("d")).append(self.costs[PLACED].pop())
        return placed

    def depart(self, at: int) -> None:
        """A running pod leaves: every other finishes first, the others are deleted."""
        self.running[at], self.running[-1] = self.running[-1], self.running[at]
        key = self.running.pop()
        pod = self.pods.pop(key)
        self.counts["left"] += 1
        if self.counts["left"] % 2:
            self._later(ECHO_AFTER, ECHO, lambda: PodGone(key))
            self.tell("departure", PodSeen(in_phase(pod, "Succeeded")))
        else:
            self.tell("departure", PodGone(key))

    def wait(self, until: float) -> None:
        """Echoes and timers that are due before this moment; the clock then stands there, or later if it was busy."""
        while True:
            wake = self.core.wakes_at()
            echo = self._echoes[0][0] if self._echoes else None
            due = min((each for each in (wake, echo) if each is not None), default=None)
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            if echo is not None and echo == due:
                _, _, kind, news = heapq.heappop(self._echoes)
                event = news()
                if event is not None:
                    self.tell(kind, event)
            else:
                self._cycle()
        self.now = max(self.now, until)

    def settle(self, bound: float) -> float:
        """Nothing new happens for so many seconds, or until nothing is left to do; seconds that passed."""
        began = self.now
        while self.now < began + bound and (self._echoes or self.core.wakes_at() is not None):
            wake = self.core.wakes_at()
            echo = self._echoes[0][0] if self._echoes else None
            self.wait(max(self.now, min(each for each in (wake, echo) if each is not None)))
        return self.now - began

    def waiting(self) -> list[str]:
        """The pods that have no node yet."""
        return [key for key, pod in self.pods.items() if not pod.spec.node_name]

    # What the core wants done

    def _cycle(self) -> None:
        began = time.process_time()
        out = self.core.cycle(self.now, PER_CYCLE)
        self._charge(TIMER, time.process_time() - began)
        self._do(out)

    def _charge(self, kind: str, seconds: float) -> None:
        self.costs.setdefault(kind, array("d")).append(seconds)
        self.spent += seconds
        self.now += seconds

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Bind():
                    self._bind(instruction)
                case Report(key, _, message, _):
                    self._report(key, message)
                case _:
                    self.counts[type(instruction).__name__] += 1

    def _bind(self, bind: Bind) -> None:
        pod = self.pods[bind.key]
        self.counts["bindings"] += 1
        if not self.counts["bindings"] % ONE_FAILS_IN:
            self._later(ECHO_AFTER, FAILED, lambda: self._unless_gone(bind.key, BindFailed(bind.key, bind.uid, "busy")))
            return
        self.pods[bind.key] = pod = bound(pod, bind.node, bind.annotations)
        self._arrived.pop(bind.key, None)
        self.told.pop(bind.key, None)
        self._later(ECHO_AFTER, ECHO, lambda: self._is_bound(pod))
        self._later(RUNS_AFTER, ECHO, lambda: self._runs(pod))

    def _is_bound(self, pod: manifest.Pod) -> Event | None:
        self.running.append(pod.key)
        return PodSeen(pod)

    def _runs(self, pod: manifest.Pod) -> Event | None:
        if pod.key in self.pods:
            self.pods[pod.key] = in_phase(pod, "Running")
        return self._unless_gone(pod.key, PodSeen(in_phase(pod, "Running")))

    def _report(self, key: str, message: str) -> None:
        """The reason is written into the pod's status, and the watch tells of the pod again."""
        self.counts["reports"] += 1
        since = self._arrived.pop(key, None)
        if since is not None:
            self.longest_silence = max(self.longest_silence, self.now - since)
        self.told[key] = message
        self._later(ECHO_AFTER, ECHO, lambda: PodSeen(self.pods[key]) if key in self.pods else None)

    def _unless_gone(self, key: str, event: Event) -> Event | None:
        return event if key in self.pods else None

    def _later(self, seconds: float, kind: str, news: Callable[[], Event | None]) -> None:
        heapq.heappush(self._echoes, (self.now + seconds, next(self._numbers), kind, news))
