"""One pod's worker: carries out what `life` decides, and notes the results.

A worker has a task only while there is something to do.  At rest, events wake it: the pod changes, a container ends, a
probe reports, or the time comes that `life` asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from enum import Enum

import msgspec

from subak.local.kubelet import action, probe, recovery
from subak.local.kubelet.admission import OutOfResource, Rejected
from subak.local.kubelet.cleaning import PATIENCE, clean
from subak.local.kubelet.container import BACK_OFF, OUT_OF_MEMORY, ContainerRecord, Progress
from subak.local.kubelet.context import Context
from subak.local.kubelet.life import DEADLINE_EXCEEDED, SHORTEST_GRACE, Life, Stop
from subak.local.kubelet.pod import Pod, Probe, Seen
from subak.local.kubelet.process import Process
from subak.local.kubelet.recipe import CONFIG_ERROR, CREATE_ERROR, Unstartable, no_command
from subak.local.kubelet.reporter import StatusReporter
from subak.local.kubelet.sandbox import Sandbox
from subak.local.kubelet.status import refused, status
from subak.local.kubelet.supplies import Supplies
from subak.local.runtime.spec import StartError
from subak.model import manifest
from subak.model.manifest import Role
from subak.model.reason import Refusal
from tinykube.events import NORMAL, WARNING, Reference
from tinykube.status import ApiError

SAY_SOMETHING_AFTER = 0.25
"""A pod that does not run after so many seconds reports what it waits for; most are faster and save a write."""

UNEXPECTED = "UnexpectedAdmissionError"
UNPREPARED = (ApiError, OSError, TimeoutError, ValueError)
"""What goes wrong with volumes; a ValueError is BadVolume, or comes from a path that no system call takes."""

log = logging.getLogger(__name__)


class Stage(Enum):
    """Where a worker stands."""

    NEW = "has not looked at the pod yet"
    ALIVE = "leads the pod's life"
    SETTLED = "has nothing more to do for it"


class Worker:
    """Runs one pod, and calls `parted` when the pod is gone and nothing of it is left."""

    __slots__ = (
        "_again",
        "_context",
        "_life",
        "_parted",
        "_processes",
        "_reporter",
        "_seen",
        "_stage",
        "_started_at",
        "_supplies",
        "_task",
        "_timer",
        "_vanished",
        "node",
    )

    def __init__(self, context: Context, node: str, seen: Seen, parted: Callable[[str], None]) -> None:
        self.node = node
        self._parted = parted
        self._context = context
        self._seen = seen
        self._stage = Stage.NEW
        self._life: Life | None = None
        self._started_at = 0.0
        self._reporter = StatusReporter(context.client, seen)
        self._processes: dict[int, Process] = {}
        self._supplies = Supplies(context, node)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again = False
        self._vanished = False

    # What happens

    def update(self, seen: Seen) -> None:
        """Take in a change of the pod in the API server; most often it is our own report."""
        old, self._seen = self._seen, seen
        self._reporter.see(seen)
        was, now = old.metadata, seen.metadata
        if (now.deletion_timestamp, now.deletion_grace_period_seconds, now.generation) != (
            was.deletion_timestamp,
            was.deletion_grace_period_seconds,
            was.generation,
        ):
            self.poke()
        elif (now.labels, now.annotations) != (was.labels, was.annotations) and b'"downwardAPI"' in bytes(seen.spec):
            self._refresh_soon()
        elif bytes(seen.status) != bytes(old.status) and b'"readinessGates"' in bytes(seen.spec):
            self.poke()

    def vanish(self) -> None:
        """Take in that the pod is gone from the API server, whether we are done or not."""
        self._vanished = True
        self._context.orphaned(self.node, self._seen.metadata.uid)
        self.poke()

    def exited(self, index: int, process: Process, exit_code: int) -> None:
        """A container ended."""
        if self._processes.get(index) is not process or self._life is None:
            return
        del self._processes[index]
        record = self._life.containers[index]
        words = ""
        if self._context.processes:
            container = self._seen.decoded().spec.all[index]
            words = self._sandbox.last_words(container, record.restarts, exit_code)
        self._ends(index, record, exit_code, OUT_OF_MEMORY if process.out_of_memory else "", words)
        self.poke()

    def probed(self, index: int, kind: probe.Kind, asked: Probe, result: action.Result, counts: bool) -> bool:
        """A probe has a result; False ends the probe."""
        life = self._life
        if life is None or index not in self._processes:
            return False
        if not result.good:
            self._event(WARNING, "Unhealthy", f"{kind} probe failed: {result.output}", index)
        if not counts:
            return True
        record = life.containers[index]
        if kind is probe.Kind.READINESS:
            changed, record.ready = record.ready is not result.good, result.good
            if changed:
                self.poke()
            return True
        if result.good and kind is probe.Kind.STARTUP:
            record.started, record.ready = True, not record.has_readiness_probe
        elif not result.good and life.ending is None:
            again = ", will be restarted" if record.restart_policy != "Never" else ""
            message = f"Container {record.name} failed {kind.lower()} probe{again}"
            life.condemn(index, message, asked.termination_grace_period_seconds)
        self.poke()
        return kind is probe.Kind.LIVENESS and result.good

    def hook_failed(self, index: int, reason: str, message: str, kill: bool) -> None:
        """A hook failed; after a failed start hook the container must end."""
        self._event(WARNING, reason, message, index)
        if kill and self._life is not None:
            self._life.condemn(index, reason, None)
            self.poke()

    # What is known

    def pod(self) -> manifest.Pod:
        """The pod as last seen."""
        return self._seen.manifest()

    def process(self, container: str) -> Process | None:
        """The container of that name, if it runs."""
        for index, record in enumerate(self._life.containers if self._life else ()):
            if record.name == container:
                return self._processes.get(index)
        return None

    @property
    def _sandbox(self) -> Sandbox:
        return Sandbox(self._context.directory, self._seen.metadata)

    # What is done

    def poke(self) -> None:
        """Wake the worker."""
        if self._task is None:
            self._task = self._context.spawn(self._run())
        else:
            self._again = True

    def close(self) -> None:
        """Stop, whatever state the pod is in."""
        self._reporter.close()
        self._set_timer(None)

    async def _run(self) -> None:
        try:
            while True:
                self._again = False
                await self._step()
                if not self._again:
                    return
        except Exception:
            log.exception("pod %s: looked at again in a while", self._seen.metadata.name)
            self._set_timer(self._context.clock() + 10.0)
        finally:
            self._task = None

    async def _step(self) -> None:
        if self._stage is Stage.NEW:
            await self._begin()
        life = self._life
        if self._stage is not Stage.ALIVE or life is None:
            self._part()
            return
        pod = self._seen.decoded()
        self._heed(pod, life)
        patience = None
        if not self._vanished and not self._processes:
            loop = asyncio.get_running_loop()
            patience = loop.call_later(SAY_SOMETHING_AFTER, self._report, pod, life)
        try:
            decision = life.decide(self._context.clock())
            while decision.prepare or decision.start or decision.stop:
                for stop in decision.stop:
                    self._stop(stop)
                if decision.prepare:
                    await self._prepare(pod, life)
                for index in decision.start:
                    await self._start(pod, life, index)
                    self._heed(pod, life)
                    if life.ending is not None:
                        break
                decision = life.decide(self._context.clock())
        finally:
            if patience is not None:
                patience.cancel()
        self._supplies.rest()
        if decision.over:
            await self._settle()
        self._report(pod, life)
        if decision.over:
            self._life = None
            self._part()
        else:
            self._set_timer(decision.wake)

    async def _begin(self) -> None:
        """Admit the pod, or refuse it."""
        now = self._context.clock()
        before = recovery.read(self._seen.status)
        if before.finished or self._vanished:
            self._stage = Stage.SETTLED
            return
        self._started_at = recovery.began(before, self._seen.metadata.creation_timestamp, now)
        crowded = bool(self._context.orphans.get(self.node))
        try:
            pod = self._seen.decoded()
            life = Life(pod, self._started_at)
            ran = recovery.recover(life, before, now)
            if self._seen.metadata.deletion_timestamp is None:
                await self._supplies.book(self._seen)
        except msgspec.ValidationError as error:
            self._refuse("FailedValidation", str(error))
        except (Rejected, Refusal) as error:
            # A pod that was deleted by force may hold what this one lacks, and be just ending, or have ended meanwhile.
            if not crowded or not isinstance(error, (OutOfResource, Refusal)):
                self._refuse(*_refusal(error))
            elif not self._context.wait_for_orphans(self.node, self.poke):
                self.poke()
        else:
            self._stage, self._life = Stage.ALIVE, life
            if ran and any(each.stale for each in life.containers):
                self._event(NORMAL, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")

    def _refuse(self, reason: str, message: str) -> None:
        self._stage = Stage.SETTLED
        self._event(WARNING, reason, message)
        if not self._vanished:
            self._reporter.report(refused(reason, message, self._seen.metadata.generation, self._started_at))

    def _heed(self, pod: Pod, life: Life) -> None:
        """Pass changes of the spec, and a deletion, on to the pod's life."""
        metadata = self._seen.metadata
        life.revise(self._seen.decoded() if metadata.generation != pod.metadata.generation else pod, self._started_at)
        if self._vanished:
            life.end(self._context.clock(), SHORTEST_GRACE)
        elif metadata.deletion_timestamp is not None:
            grace = metadata.deletion_grace_period_seconds
            life.end(self._context.clock(), life.grace if grace is None else float(grace))

    async def _prepare(self, pod: Pod, life: Life) -> None:
        """Set up what all containers share."""
        try:
            remarks = await self._supplies.set_up(pod, self._refresh_soon)
        except UNPREPARED as error:
            self._event(WARNING, "FailedMount", str(error))
            life.prepared_in_vain(self._context.clock())
            return
        for remark in remarks:
            self._event(WARNING, "MissingHostPath", remark)
        life.prepared = True

    def _refresh_soon(self) -> None:
        self._context.spawn(self._refresh())

    async def _refresh(self) -> None:
        """Refresh the volumes; a volume whose source is gone or unreadable stays as it was."""
        if self._life is None or not self._life.prepared or self._life.ending is not None:
            return
        try:
            await self._supplies.set_up(self._seen.decoded(), self._refresh_soon)
        except UNPREPARED as error:
            self._event(WARNING, "FailedMount", str(error))

    async def _start(self, pod: Pod, life: Life, index: int) -> None:
        record, context = life.containers[index], self._context
        try:
            attempt = record.restarts + (record.state is Progress.ENDED)
            spec = await self._supplies.recipe(self._seen, pod, index, attempt)
            container = pod.spec.all[index]
            runtime = context.runtime if spec.argv else context.stand_in
            if runtime is None:
                raise no_command(container, _field(pod, index))
            async with context.starts:
                running = await runtime.start(spec)
        except Unstartable as error:
            self._event(WARNING, "Failed", f"Error: {error.message}", index)
            record.fails_to_start(error.reason, error.message, math.inf if error.final else context.clock())
            return
        except StartError as error:
            self._event(WARNING, "Failed", f"Error: {error.message}", index)
            if error.passes or not error.exit_code:
                reason = CREATE_ERROR if error.passes else CONFIG_ERROR
                record.fails_to_start(reason, error.message, context.clock())
                return
            record.starts(secrets.token_hex(32), context.clock())
            self._ends(index, record, error.exit_code, error.reason, error.message)
            return
        record.starts(secrets.token_hex(32), context.clock())
        real = running.pid != 0 and runtime is not context.stand_in
        if not real:
            record.started = record.role is not Role.INIT
            record.ready = record.started
        if running.pid:
            self._event(NORMAL, "Created", "Container created", index)
            self._event(NORMAL, "Started", "Container started", index)
            unserved = probe.unserved(container, real)
            if unserved:
                self._event(WARNING, "ProbeWarning", unserved, index)
        process = Process(context, self, index, running, container if real else None, spec.env if running.pid else {})
        self._processes[index] = process
        process.attend()

    def _ends(self, index: int, record: ContainerRecord, exit_code: int, reason: str = "", message: str = "") -> None:
        metadata = self._seen.metadata
        title = f"{metadata.name}_{metadata.namespace}({metadata.uid})"
        record.ends(exit_code, self._context.clock(), title, reason, message)
        if record.waiting is not None and record.waiting.reason == BACK_OFF:
            text = f"Back-off restarting failed container {record.name} in pod {title}"
            self._event(WARNING, "BackOff", text, index)

    def _stop(self, stop: Stop) -> None:
        process = self._processes[stop.index]
        if process.real:
            self._event(NORMAL, "Killing", stop.message, stop.index)
        process.stop(stop.grace)

    async def _settle(self) -> None:
        """Release all that the pod held."""
        assert self._life is not None
        if self._life.ending and self._life.ending.reason == DEADLINE_EXCEEDED:
            self._event(NORMAL, DEADLINE_EXCEEDED, self._life.ending.message)
        await self._supplies.release(self._seen)
        if self._context.processes:
            cleaning = self._context.spawn(clean(self._sandbox.remove, self._cannot_clean))
            await asyncio.wait([cleaning], timeout=PATIENCE)
        self._stage = Stage.SETTLED

    def _cannot_clean(self, why: str) -> None:
        self._event(WARNING, "FailedUnMount", f"a volume of the pod {why}")

    def _part(self) -> None:
        """Let go of an ended pod that is gone, or delete it from the API server if it was to be deleted."""
        if self._vanished:
            self.close()
            if self._context.processes:
                self._context.spawn(clean(self._sandbox.remove_logs))
            self._context.orphan_ended(self.node, self._seen.metadata.uid)
            self._parted(self._seen.metadata.uid)
        elif self._seen.metadata.deletion_timestamp is not None:
            self._reporter.delete()

    def _report(self, pod: Pod, life: Life) -> None:
        if self._vanished:
            return
        said = self._reporter.said
        seen = msgspec.json.decode(self._seen.status) if pod.spec.readiness_gates else {}
        self._reporter.report(status(pod, life, self._started_at, self._context.clock(), said, seen))

    def _event(self, type: str, reason: str, message: str, index: int | None = None) -> None:
        metadata = self._seen.metadata
        field = "" if index is None or self._life is None else _path(self._life, index)
        about = Reference("v1", "Pod", metadata.name, metadata.namespace, metadata.uid, field)
        self._context.recorder.record(about, type, reason, message)

    def _set_timer(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None and when < math.inf:
            pause = max(when - self._context.clock(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(pause, self.poke)


def _refusal(error: Rejected | Refusal) -> tuple[str, str]:
    """Reason and message of a pod that the node does not take."""
    if isinstance(error, Rejected):
        return error.reason, error.message
    return UNEXPECTED, f"Allocate failed due to {error.message}, which is unexpected"


def _path(life: Life, index: int) -> str:
    """A container's path in events."""
    record = life.containers[index]
    return f"spec.{'containers' if record.role is Role.APP else 'initContainers'}{{{record.name}}}"


def _field(pod: Pod, index: int) -> str:
    early = len(pod.spec.init_containers)
    return f"spec.initContainers[{index}]" if index < early else f"spec.containers[{index - early}]"
