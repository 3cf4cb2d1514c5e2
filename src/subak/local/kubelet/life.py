"""Decides what happens next in a pod's life, from the records of its containers.

    prepare ── init containers, one after the other ──> app containers ── all ended ──> over
               sidecars among them start in their turn and stay                          ^
                                            deleted, past its deadline: stop all ────────┘

Init containers run to their end in order.  A sidecar (an init container that restarts always) only has to be started
before the next one begins.  Then all app containers run.  When they have ended for good, the sidecars are stopped, the
last one first.  A container that must not end by its restart policy is started again, see `container`.

There is no I/O here and no clock: `decide(now)` says what to do, and the worker notes the results in the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from subak.local.kubelet.container import FIRST_RETRY, LONGEST_RETRY, Condemned, ContainerRecord
from subak.local.kubelet.pod import Pod
from subak.model.manifest import Role

SHORTEST_GRACE = 2.0
"""Seconds that every program gets to end by itself, even if it is to be killed at once."""

DEADLINE_EXCEEDED = "DeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask a container to end, and kill it after `grace` seconds."""

    index: int
    grace: float
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.  `wake` is when to decide again without an event; `over` says that nothing more will happen."""

    prepare: bool = False
    start: tuple[int, ...] = ()
    stop: tuple[Stop, ...] = ()
    over: bool = False
    wake: float | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """The pod must end: its containers are killed at `kill_by` at the latest, `grace` seconds after it was told."""

    kill_by: float
    grace: float
    reason: str = ""
    message: str = ""


class Life:
    """One pod's life.  Containers are in the order of the spec, init containers first."""

    __slots__ = ("containers", "deadline", "ending", "grace", "initialized", "prepare_at", "prepared", "retries")

    def __init__(self, pod: Pod, started_at: float) -> None:
        spec = pod.spec
        self.containers = [
            ContainerRecord(
                each.name,
                Role.SIDECAR if each.restart_policy == "Always" else Role.INIT,
                each.restart_policy or spec.restart_policy,
                each.startup_probe is not None,
                each.readiness_probe is not None,
            )
            for each in spec.init_containers
        ] + [
            ContainerRecord(
                each.name,
                Role.APP,
                each.restart_policy or spec.restart_policy,
                each.startup_probe is not None,
                each.readiness_probe is not None,
            )
            for each in spec.containers
        ]
        self.grace = 0.0
        self.deadline: float | None = None
        self.revise(pod, started_at)
        self.initialized = not spec.init_containers
        self.prepared = False
        self.prepare_at = 0.0
        self.retries = 0
        self.ending: Ending | None = None

    @property
    def apps(self) -> list[ContainerRecord]:
        """The app containers."""
        return [each for each in self.containers if each.role is Role.APP]

    @property
    def over(self) -> bool:
        """Whether nothing runs and nothing will."""
        return self.ending is not None and not any(each.running for each in self.containers)

    def revise(self, pod: Pod, started_at: float) -> None:
        """Take in the fields of the spec that may change while the pod runs."""
        self.grace = float(pod.spec.termination_grace_period_seconds)
        limit = pod.spec.active_deadline_seconds
        self.deadline = None if limit is None else started_at + limit

    def prepared_in_vain(self, now: float) -> None:
        """Note that the volumes could not be set up; that is tried again after a growing pause."""
        self.prepare_at = now + min(FIRST_RETRY * 2**self.retries, LONGEST_RETRY)
        self.retries = min(self.retries + 1, 10)

    def end(self, now: float, grace: float, reason: str = "", message: str = "") -> None:
        """End the pod within `grace` seconds; a later call can only shorten that."""
        kill_by = now + grace
        if self.ending is None:
            self.ending = Ending(kill_by, grace, reason, message)
        elif kill_by < self.ending.kill_by:
            self.ending = replace(self.ending, kill_by=kill_by, grace=min(grace, self.ending.grace))

    def condemn(self, index: int, message: str, grace: float | None) -> None:
        """Note that a running container is unhealthy and must end."""
        container = self.containers[index]
        if container.running and container.condemned is None:
            container.condemned = Condemned(message, self.grace if grace is None else grace)

    def decide(self, now: float) -> Decision:
        """What to do now."""
        self._keep_time(now)
        if self.ending is None and self.deadline is not None and now >= self.deadline:
            message = "Pod was active on the node longer than the specified deadline"
            self.end(now, self.grace, DEADLINE_EXCEEDED, message)
        wanted = self._wanted() if self.ending is None else None
        if wanted is None:
            if self.ending is None:
                self.end(now, self.grace)
            return self._wind_up(now)
        stop = [
            self._stop(index, each, now, now + each.condemned.grace, each.condemned.message)
            for index, each in enumerate(self.containers)
            if each.running and each.condemned and each.stop_by is None
        ]
        times = [self.containers[index].not_before for index in wanted]
        if wanted and not self.prepared:
            ready = self.prepare_at <= now
            return Decision(prepare=ready, stop=tuple(stop), wake=self._wake(() if ready else (self.prepare_at,)))
        due = tuple(index for index, time in zip(wanted, times, strict=True) if time <= now)
        return Decision(start=due, stop=tuple(stop), wake=self._wake(time for time in times if time > now))

    def _keep_time(self, now: float) -> None:
        """Wait no longer than was meant, though the clock was set back."""
        self.prepare_at = min(self.prepare_at, now + LONGEST_RETRY)
        if self.ending is not None:
            self.ending = replace(self.ending, kill_by=min(self.ending.kill_by, now + self.ending.grace))
        for each in self.containers:
            each.keep_time(now)

    def _wake(self, times: Iterable[float]) -> float | None:
        return min((*times, *(() if self.deadline is None else (self.deadline,))), default=None)

    def _wanted(self) -> list[int] | None:
        """The containers that should run and do not; None if the pod is done or cannot go on."""
        wanted: list[int] = []
        early = [each for each in self.containers if each.role is not Role.APP]
        if not self.initialized:
            current = max((index for index, each in enumerate(early) if each.begun), default=-1)
            wanted += [index for index, each in enumerate(early[: max(current, 0)]) if _fallen(each)]
            if current >= 0 and not _done(early[current]):
                if early[current].running:
                    return wanted
                return [*wanted, current] if early[current].wants_start else None
            if current + 1 < len(early):
                return [*wanted, current + 1]
            self.initialized = True
        else:
            wanted += [index for index, each in enumerate(early) if _fallen(each)]
        apps = list(enumerate(self.apps, len(early)))
        wanted += [index for index, each in apps if each.wants_start]
        return wanted if any(each.running or each.wants_start for _, each in apps) else None

    def _wind_up(self, now: float) -> Decision:
        """Stop running containers: sidecars only when all later containers have ended, or when time is up."""
        assert self.ending is not None
        running = [(index, each) for index, each in enumerate(self.containers) if each.running]
        if not running:
            return Decision(over=True)
        kill_by = self.ending.kill_by
        first = [(index, each) for index, each in running if each.role is not Role.SIDECAR] or running[-1:]
        turn = running if now >= kill_by else first
        stop = [
            self._stop(index, each, now, kill_by, f"Stopping container {each.name}")
            for index, each in turn
            if each.stop_by is None or max(kill_by, now + SHORTEST_GRACE) < each.stop_by
        ]
        return Decision(stop=tuple(stop), wake=kill_by if len(turn) < len(running) else None)

    def _stop(self, index: int, container: ContainerRecord, now: float, kill_by: float, message: str) -> Stop:
        container.stop_by = max(kill_by, now + SHORTEST_GRACE)
        return Stop(index, container.stop_by - now, message)


def _fallen(container: ContainerRecord) -> bool:
    """Whether it is a sidecar that has ended, though later containers were started."""
    return container.role is Role.SIDECAR and not container.running


def _done(container: ContainerRecord) -> bool:
    """Whether an init container lets the next one start."""
    return container.started if container.role is Role.SIDECAR else container.succeeded and not container.stale
