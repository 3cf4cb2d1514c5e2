"""The record of one container: whether it runs, how it ended, and when it may start again.

A container that ends is started again at once the first time.  After that it has to wait: 10 seconds, 20, 40, up to 5
minutes, counted from its end; if it had run for more than 10 minutes, the count begins anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from subak.model.manifest import Role

FIRST_PAUSE = 10.0
LONGEST_PAUSE = 300.0
FORGIVEN_AFTER = 600.0

FIRST_RETRY = 1.0
LONGEST_RETRY = 10.0

CREATING = "ContainerCreating"
INITIALIZING = "PodInitializing"
BACK_OFF = "CrashLoopBackOff"
UNKNOWN = "ContainerStatusUnknown"
OUT_OF_MEMORY = "OOMKilled"


class Progress(Enum):
    """What the container does."""

    NEW = "never ran"
    RUNNING = "runs"
    ENDED = "ran"


@dataclass(frozen=True, slots=True)
class End:
    """How a container ended; times are seconds since the epoch."""

    exit_code: int
    reason: str
    started_at: float | None
    finished_at: float | None
    message: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Condemned:
    """Why a running container must end, and how long it may take."""

    message: str
    grace: float


@dataclass(slots=True)
class ContainerRecord:
    """One container of a pod through all its restarts.

    `stale`: it ran before the machine or the kubelet was restarted.  That run counts for its history, but not for the
    order in which containers start.
    """

    name: str
    role: Role
    restart_policy: str
    has_startup_probe: bool = False
    has_readiness_probe: bool = False
    state: Progress = Progress.NEW
    stale: bool = False
    id: str = ""
    restarts: int = 0
    started_at: float = 0.0
    end: End | None = None
    last: End | None = None
    waiting: Waiting | None = None
    condemned: Condemned | None = None
    stop_by: float | None = None
    not_before: float = 0.0
    failures: int = 0
    pause: float = 0.0
    paused_at: float = 0.0
    started: bool = False
    ready: bool = False

    @property
    def begun(self) -> bool:
        """Whether it has started, as far as the order of containers is concerned."""
        return self.state is not Progress.NEW and not self.stale

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state is Progress.RUNNING

    @property
    def succeeded(self) -> bool:
        """Whether it ended well."""
        return self.state is Progress.ENDED and self.end is not None and self.end.exit_code == 0

    @property
    def wants_start(self) -> bool:
        """Whether it does not run, and its restart policy says that it should."""
        if self.state is Progress.NEW or self.stale:
            return True
        if self.running:
            return False
        if self.role is Role.SIDECAR:
            return True
        if self.role is Role.INIT:
            return not self.succeeded and self.restart_policy != "Never"
        return self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and not self.succeeded)

    def starts(self, id: str, now: float) -> None:
        """Note that it was started."""
        if self.state is Progress.ENDED:
            self.restarts += 1
            self.last = self.end
            if not self.stale:
                self.pause = min(self.pause * 2, LONGEST_PAUSE) if self.pause else FIRST_PAUSE
                self.paused_at = now
        self.state, self.stale = Progress.RUNNING, False
        self.id, self.started_at, self.end = id, now, None
        self.waiting = self.condemned = self.stop_by = None
        self.failures = 0
        # Init containers never count as started or ready: later containers wait for their end.
        self.started = self.role is not Role.INIT and not self.has_startup_probe
        self.ready = self.started and not self.has_readiness_probe

    def ends(self, exit_code: int, now: float, title: str, reason: str = "", message: str = "") -> None:
        """Note that it ended by itself or was stopped."""
        reason = reason or ("Completed" if exit_code == 0 else "Error")
        self.end = End(exit_code, reason, self.started_at, now, message, self.id)
        self.state = Progress.ENDED
        self.started = self.ready = False
        self.condemned = self.stop_by = None
        self.not_before = now
        if now - self.paused_at > FORGIVEN_AFTER:
            self.pause = 0.0
        if self.pause and self.wants_start:
            self.not_before = now + self.pause
            self.waiting = Waiting(
                BACK_OFF, f"back-off {duration(self.pause)} restarting failed container={self.name} pod={title}"
            )

    def fails_to_start(self, reason: str, message: str, now: float) -> None:
        """Note that it could not be started; it is tried again after a growing pause."""
        self.waiting = Waiting(reason, message)
        self.not_before = now + min(FIRST_RETRY * 2**self.failures, LONGEST_RETRY)
        self.failures = min(self.failures + 1, 10)

    def keep_time(self, now: float) -> None:
        """Wait no longer than was meant, though the clock was set back; what waits for ever still does."""
        if self.not_before < math.inf:
            self.not_before = min(self.not_before, now + max(self.pause, LONGEST_RETRY))


def duration(seconds: float) -> str:
    """A duration in the kubelet's format: `40s`, `1m20s`, `5m0s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
