"""The guard of a node: the runtime asks it about every container, and gets what the container is to have, or a refusal.

    runtime ── create ──> whose container? ── pods of the watch ──> arbiter ──> variables, mounts, device nodes
                              │                                        │ no room, no record, forged, of another node
                              │ unknown after a second                 ▼
                              └──────────────────────────────────> refused, with an event on the pod; kubelet retries

    runtime ── validate ────> is what all plugins together want what we decided?  If not, the container is not created.
    runtime ── synchronize ─> what runs here; containers that started without us while we were away are reported

A container that holds no card, and whose image or pod says that NVIDIA's runtime shall show it some, is shown none.
Privileged containers, containers of exempt namespaces, and those whose cards a vendor's own living agent serves are
left as they are.

Who holds cards is known from two sides.  A pod holds them from its first container on, and until none of its containers
lives in the runtime and it is gone or finished in the API server.  So a pod that was deleted by force holds its cards
until its programs have really ended.

Nothing here waits for an API server: what must be said or done there goes to `Outbox`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from subak.dialects import Injection, isolation
from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.mount import Purpose
from subak.model.reason import Refusal
from subak.node.arbiter import Arbiter
from subak.node.cdi import Catalogue
from subak.node.host import Host
from subak.node.nri import adjust
from subak.node.nri.messages import NO_ADJUSTMENT, Adjustment, Container, Runtime, Sandbox
from subak.node.nri.plugin import Refused

PATIENCE_S = 1.0
"""How long a container waits for its pod to be seen by our watch; the runtime gives us 2 s."""

EXEMPT = frozenset({"kube-system", "subak-system"})

SOURCE, HASH, FROM_API = "kubernetes.io/config.source", "kubernetes.io/config.hash", "api"
"""Annotations that kubelet itself gives each pod: where it has it from.  A pod of a file on the node (a static pod) is
known to the runtime by the hash of that file; the API server has a mirror of it, with a UID of its own."""

_NEEDED = (Purpose.LIMITS, Purpose.LIBRARY, Purpose.PRELOAD)

log = logging.getLogger(__name__)


class Pods(Protocol):
    """The pods of this node, as our own watch sees them."""

    def get(self, uid: str) -> manifest.Pod | None:
        """The pod with this UID."""

    async def wait(self, uid: str, seconds: float) -> manifest.Pod | None:
        """The same, as soon as it is seen; None after so many seconds."""

    def __iter__(self) -> Iterator[manifest.Pod]: ...


class Outbox(Protocol):
    """What others do later, where waiting is allowed."""

    def refused(self, pod: manifest.Pod, container: str, message: str, cause: str = "") -> None:
        """Tell the pod's user that a container may not start, and why; `cause` is the word under which it counts."""

    def warn(self, pod: manifest.Pod, container: str, message: str) -> None:
        """Tell the pod's user what is not as it should be."""

    def evict(self, pod: manifest.Pod, message: str) -> None:
        """Remove a pod whose container runs without its limits, and say why."""


@dataclass(frozen=True, slots=True)
class Exemptions:
    """Whose containers are left as they are.

    `served` gives the names of the dialects that vendors' own living agents serve on this node.
    """

    namespaces: Collection[str] = EXEMPT
    served: Callable[[], Collection[str]] = frozenset


class Guard:
    """The handler of our NRI plugin."""

    def __init__(
        self,
        arbiter: Arbiter,
        interpreter: Interpreter,
        pods: Pods,
        outbox: Outbox,
        *,
        host: Host | None = None,
        exempt: Exemptions | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._arbiter = arbiter
        self._interpreter = interpreter
        self._pods = pods
        self._outbox = outbox
        self._host = host
        self._exempt = exempt or Exemptions()
        self._catalogue = catalogue or Catalogue()
        self._runtime = Runtime()
        self._living: dict[str, set[str]] = {}
        """The containers that live, or are about to, by the UID of their pod."""
        self._decided: dict[str, Adjustment] = {}
        """What was decided for containers that are being created."""
        arbiter.alive = self._living.__contains__

    def configure(self, runtime: Runtime) -> None:
        """Know what the runtime can do."""
        self._runtime = runtime

    def synchronize(self, sandboxes: Sequence[Sandbox], containers: Sequence[Container]) -> None:
        """Know what runs here, book it, and report what runs without its limits."""
        by_id = {each.id: each for each in sandboxes}
        self._living.clear()
        self._decided.clear()
        for container in containers:
            if container.sandbox in by_id:
                self._living.setdefault(by_id[container.sandbox].uid, set()).add(container.id)
        for pod in self._pods:
            if pod.metadata.uid in self._living or (pod.started and not pod.finished):
                self._restore(pod)
        self._settle()
        for sandbox in sandboxes:
            self._look_over(sandbox, [each for each in containers if each.sandbox == sandbox.id])
        if self._host is not None:
            self._host.sweep({*self._living, *(pod.metadata.uid for pod in self._pods)})
            self._host.prune(mount.source for container in containers for mount in container.mounts)

    async def create(self, sandbox: Sandbox, container: Container) -> Adjustment:
        """What the container gets.  Raises Refused."""
        pod = await self._pod(sandbox, container)
        self._settle()
        try:
            adjustment = self._adjustment(sandbox, container, pod)
        except ValueError as error:  # a Refusal, or what a dialect cannot make sense of
            why = self._refuse(pod, container, str(error), getattr(error, "cause", ""))
            raise Refused(why) from None
        self._living.setdefault(sandbox.uid, set()).add(container.id)
        self._decided[container.id] = adjustment
        return adjustment

    def validate(self, sandbox: Sandbox, container: Container, adjustment: Adjustment) -> str:
        """Why the container must not be created like this; empty if it is as we decided."""
        decided = self._decided.pop(container.id, None)
        if decided is None:
            problem = "the runtime did not ask the node's agent about it"
        else:
            pod = self._known(sandbox)
            if self._is_left_alone(sandbox, container, pod):
                return ""
            files = self._arbiter.machine.device_files
            cards = {*files, *(path for paths in files.values() for path in paths)}
            problem = adjust.difference(decided, adjustment, cards)
        if not problem:
            return ""
        self._end(sandbox.uid, container.id)
        self._give_back(sandbox.uid)
        return self._refuse(self._known(sandbox), container, f"{problem}; another NRI plugin is in the way")

    def stop(self, sandbox: Sandbox, container: Container) -> None:
        """A container has ended, or did not come into being."""
        self._decided.pop(container.id, None)
        self._end(sandbox.uid, container.id)
        self._settle()

    def follow(self, pod: manifest.Pod) -> None:
        """A pod of this node has changed: book what it holds if it runs; take its cards back if it is over."""
        if pod.metadata.uid in self._living or (pod.started and not pod.finished):
            self._restore(pod)
        self._settle()

    # Pods

    async def _pod(self, sandbox: Sandbox, container: Container) -> manifest.Pod | None:
        """The container's pod; None if it needs none: a static pod, or one that is exempt and asks for nothing."""
        pod = self._known(sandbox)
        if pod is not None or _is_static(sandbox):
            return pod
        if sandbox.namespace in self._exempt.namespaces and not self._recorded(sandbox):
            return None  # a node whose agent cannot reach the API server must still be able to start what repairs it
        await self._pods.wait(sandbox.uid, PATIENCE_S)
        pod = self._known(sandbox)
        if pod is None:
            log.warning("pod %s (%s) is unknown; container %s is refused", sandbox.key, sandbox.uid, container.name)
            raise Refused(
                f"the agent of node {self._arbiter.machine.name} does not know pod {sandbox.key} ({sandbox.uid}) yet; "
                "kubelet will try again"
            )
        return pod

    def _known(self, sandbox: Sandbox) -> manifest.Pod | None:
        """The pod of a sandbox, or the mirror of a static one, as far as we have seen it."""
        if _is_static(sandbox):
            # Anybody can write the annotation, but the mirror alone has the name.
            mirrors = (each for each in self._pods if each.annotations.get(HASH) == sandbox.uid)
            return next((each for each in mirrors if each.key == sandbox.key), None)
        pod = self._pods.get(sandbox.uid)
        return pod if pod is not None and pod.metadata.uid == sandbox.uid else None

    def _recorded(self, sandbox: Sandbox) -> bool:
        return not self._interpreter.recorded.isdisjoint(sandbox.annotations)

    def _is_left_alone(self, sandbox: Sandbox, container: Container, pod: manifest.Pod | None) -> bool:
        """Whether the container, if it holds no card of ours, may see cards all the same."""
        if pod is not None:
            spoken = [each.name for each in self._interpreter.speaking(pod)]
            if spoken:
                return set(spoken) <= set(self._exempt.served())
            declared = next((each for each in pod.containers if each.name == container.name), None)
            if declared is not None and declared.security_context is not None and declared.security_context.privileged:
                return True
        # A machine without cards of ours may have some that a vendor's own agent and its monitors need.
        return sandbox.namespace in self._exempt.namespaces or not self._arbiter.machine.devices

    # Decisions

    def _adjustment(self, sandbox: Sandbox, container: Container, pod: manifest.Pod | None) -> Adjustment:
        """What the container gets.  Raises Refusal, and ValueError where a dialect gives up."""
        if self._is_left_alone(sandbox, container, pod):
            return NO_ADJUSTMENT
        if pod is None or not self._interpreter.speaking(pod):
            return adjust.hidden(container)
        if _is_static(sandbox):
            raise Refusal("spec", "", "static pods get no cards: no scheduler chose any; make it a DaemonSet or a Job")
        before = self._arbiter.holds(pod)
        injections = self._arbiter.admit(pod)
        position = _position(pod, container)
        try:
            if position is None or injections[position] == Injection():
                return adjust.hidden(container)  # an ephemeral container, or one that asks for no card
            self._arbiter.starting(pod, position)
            cdi = self._catalogue.names(self._arbiter.cards(pod, position)) if self._runtime.injects_cdi else ()
            return adjust.adjustment(injections[position], container, cdi)
        except Exception:
            if not before:
                self._give_back(pod.metadata.uid)
            raise

    def _refuse(self, pod: manifest.Pod | None, container: Container, why: str, cause: str = "") -> str:
        """Say on the pod why a container may not start; gives what the runtime is told."""
        if pod is not None:
            log.warning("pod %s, container %s: refused: %s", pod.key, container.name, why)
            self._outbox.refused(pod, container.name, why, cause)
        return f"subak: {why}"

    # Who holds what

    def _restore(self, pod: manifest.Pod) -> None:
        if not self._arbiter.holds(pod) and self._interpreter.speaking(pod) and not self._is_foreign(pod):
            self._arbiter.restore(pod)

    def _is_foreign(self, pod: manifest.Pod) -> bool:
        return {each.name for each in self._interpreter.speaking(pod)} <= set(self._exempt.served())

    def _end(self, uid: str, id: str) -> None:
        living = self._living.get(uid)
        if living is not None:
            living.discard(id)
            if not living:
                del self._living[uid]

    def _settle(self) -> None:
        """Take cards back from pods of which no container lives, and that are gone or finished."""
        for pod in self._arbiter.holders():
            now = self._pods.get(pod.metadata.uid)
            if now is None or now.finished:
                self._arbiter.release(pod)

    def _give_back(self, uid: str) -> None:
        """Take back what a pod got for a container that will not start; others of it may run."""
        for pod in self._arbiter.holders():
            if pod.metadata.uid == uid:
                self._arbiter.release(pod)

    # What ran while we were away

    def _look_over(self, sandbox: Sandbox, containers: Sequence[Container]) -> None:
        """Report containers of a pod that run without what they should have."""
        pod = self._known(sandbox)
        if pod is None:
            self._hold_unknown(sandbox, containers)
        elif self._arbiter.machine.devices and not _is_static(sandbox):
            for container in containers:
                if not self._is_left_alone(sandbox, container, pod):
                    self._inspect(pod, container)

    def _inspect(self, pod: manifest.Pod, container: Container) -> None:
        if not self._interpreter.speaking(pod):
            if container.variables.get(isolation.SHOWN, "") not in isolation.HIDDEN:
                message = f"container {container.name} sees cards without asking for any; restart it to hide them"
                self._outbox.warn(pod, container.name, message)
            return
        position = _position(pod, container)
        missing = self._missing(pod, position, container) if position is not None else ""
        if missing:
            message = f"container {container.name} started while the node's agent was away, and {missing}"
            log.warning("pod %s: %s; it is evicted", pod.key, message)
            self._outbox.evict(pod, message)

    def _missing(self, pod: manifest.Pod, position: int, container: Container) -> str:
        """What the container should have and has not; empty if it has all.

        Only what every version of ours gives is looked at, and not from where it is mounted: containers that an older
        version started go on.
        """
        ours = {each.destination for each in container.mounts if self._host is None or self._host.owns(each.source)}
        try:
            injection = self._arbiter.admit(pod)[position]
        except Refusal as refusal:
            return "" if isolation.LIMITS in ours else f"may have no card: {refusal.message}"
        except ValueError as error:
            log.warning("pod %s: what container %s should have is unknown: %s", pod.key, container.name, error)
            return ""
        for mount in injection.mounts:
            if mount.purpose in _NEEDED and mount.destination not in ours:
                return f"has no {mount.destination}, so that no limit holds"
        shown = container.variables.get(isolation.SHOWN)
        expected = injection.env.get(isolation.SHOWN)
        if expected is not None and shown not in (expected, isolation.VOID):
            return f"sees the cards {shown or 'of its image'}, not {expected}"
        return ""

    def _hold_unknown(self, sandbox: Sandbox, containers: Sequence[Container]) -> None:
        """Count what containers of a pod hold that is gone: until they end it is not free.

        The runtime knows the annotations of the pod, and so its record.  Where that says nothing of a card that they
        name, they count on the whole card.
        """
        known = manifest.Metadata(
            name=sandbox.name, namespace=sandbox.namespace, uid=sandbox.uid, annotations=dict(sandbox.annotations)
        )
        pod = manifest.Pod(
            metadata=known,
            spec=manifest.PodSpec(containers=[manifest.Container(name=each.name) for each in containers]),
        )
        values = [value for each in containers for value in each.variables.values()]
        cards = [each.id for each in self._arbiter.machine.devices if any(each.id in value for value in values)]
        if not self._arbiter.holds(pod):
            self._arbiter.restore_cards(pod, cards)


def _is_static(sandbox: Sandbox) -> bool:
    return sandbox.annotations.get(SOURCE, FROM_API) != FROM_API


def _position(pod: manifest.Pod, container: Container) -> int | None:
    names = [each.name for each in pod.containers]
    return names.index(container.name) if container.name in names else None
