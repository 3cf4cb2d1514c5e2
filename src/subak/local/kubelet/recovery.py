"""Recovers pods after a restart of the kubelet, from their status.

Containers end with the kubelet that started them, so to the pods a restart is like a reboot of the machine.  Nobody saw
how a running container ended (exit code 255, reason Unknown, as containerd reports after a reboot).  If the pod goes
on, it starts from the beginning: init containers run again, and crash pauses are forgotten.  A container that had ended
for good stays ended.
"""

from __future__ import annotations

import msgspec

from subak.local.kubelet import moment
from subak.local.kubelet.container import ContainerRecord, End, Progress
from subak.local.kubelet.life import Life
from subak.local.kubelet.status import SCHEME
from subak.model.manifest import Lean, Role

LOST_EXIT_CODE = 255
LOST_REASON = "Unknown"


class Running(Lean, frozen=True, gc=False, kw_only=True):
    """Since when it runs."""

    started_at: str = ""


class Terminated(Lean, frozen=True, gc=False, kw_only=True):
    """How it ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(Lean, frozen=True, gc=False, kw_only=True):
    """One of its fields is set; neither if it waits."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Lean, frozen=True, gc=False, kw_only=True):
    """What the status says of a container."""

    name: str
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Lean, frozen=True, gc=False, kw_only=True):
    """What the status says of a pod."""

    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the pod has ended."""
        return self.phase in ("Succeeded", "Failed")


_STATUS = msgspec.json.Decoder(PodStatus)


def read(status: msgspec.Raw) -> PodStatus:
    """Decode the status.  Raises msgspec.ValidationError if it cannot be read."""
    return _STATUS.decode(status)


def began(status: PodStatus, created: str, now: float) -> float:
    """When the pod started: neither before it was created nor in the future, whatever others wrote there."""
    if not status.start_time:
        return now
    return min(max(moment.read(status.start_time), moment.read(created) if created else 0.0), now)


def recover(life: Life, status: PodStatus, now: float) -> bool:
    """Set the records of a new life to what its containers did before; True if any of them ever ran."""
    known = {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)}
    for container in life.containers:
        found = known.get(container.name)
        if found is not None:
            _remember(container, found, now)
    ran = any(each.state is Progress.ENDED for each in life.containers)
    if status.finished or not any(each.wants_start for each in life.apps):
        life.initialized = life.initialized or any(each.state is Progress.ENDED for each in life.apps)
        return ran
    for container in life.containers:
        again = container.role is not Role.APP or container.wants_start
        container.stale = container.state is Progress.ENDED and again and not _hopeless(container)
        container.waiting, container.not_before = None, 0.0
    return ran


def _remember(container: ContainerRecord, status: ContainerStatus, now: float) -> None:
    container.restarts = status.restart_count
    container.id = status.container_id.removeprefix(SCHEME)
    last, ended = status.last_state.terminated, status.state.terminated
    if status.state.running is not None:
        began = status.state.running.started_at
        container.end = End(LOST_EXIT_CODE, LOST_REASON, moment.read(began) if began else None, now, id=container.id)
        container.last = _end(last) if last else None
    elif ended is not None:
        container.end = _end(ended)
        container.last = _end(last) if last else None
    elif last is not None:  # it waited to be started again
        container.end = _end(last)
    if container.end is not None:
        container.state = Progress.ENDED


def _end(said: Terminated) -> End:
    return End(
        said.exit_code,
        said.reason,
        moment.read(said.started_at) if said.started_at else None,
        moment.read(said.finished_at) if said.finished_at else None,
        said.message,
        said.container_id.removeprefix(SCHEME),
    )


def _hopeless(container: ContainerRecord) -> bool:
    """Whether it is an init container that failed for good: the pod has failed with it."""
    return container.role is Role.INIT and not container.succeeded and container.restart_policy == "Never"
