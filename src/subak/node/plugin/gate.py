"""The gate of a node without NRI: which container may start with a slot.

    allocated   kubelet has given the slot to somebody, and does not say to whom: it is closed
    starting    a container is about to be created with it.  Kubelet says which; the arbiter says what it gets; the slot
                is opened for it.  Otherwise it stays closed, kubelet gets the reason, and tries again later

A slot stays its container's until kubelet gives it to another, so a restart of the container asks nobody but the
arbiter.  The pod's object is read from the API server: kubelet names a pod without its UID, and a watch may be late.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from subak.dialects import Injection, downward, isolation
from subak.model import manifest
from subak.model.reason import Refusal
from subak.model.variables import SLOT
from subak.node.machine import Machine
from subak.node.plugin.podresources import NoAnswer, PodResources
from subak.node.plugin.slots import ENTRIES, Slots

log = logging.getLogger(__name__)

Find = Callable[[str, str], Awaitable[manifest.Pod | None]]
"""The pod of a namespace and name as it is now, None if there is none.  Raises OSError or ApiError."""

Refused = Callable[[manifest.Pod, str, Refusal], None]
"""Tells the pod's user why the container of this name may not start."""


class Judge(Protocol):
    """What the gate asks of an arbiter (`node.arbiter`)."""

    @property
    def machine(self) -> Machine:
        """The machine as it is now."""

    def admit(self, pod: manifest.Pod) -> list[Injection]:
        """What each container gets.  Raises Refusal."""

    def starting(self, pod: manifest.Pod, position: int) -> None:
        """The container begins with clean books."""


class Known(Protocol):
    """The pods of this node (`node.pods`)."""

    def get(self, uid: str) -> manifest.Pod | None:
        """The pod; None if it is not known."""

    def __iter__(self) -> Iterator[manifest.Pod]: ...


class Closed(Exception):
    """A container may not start; the text says why."""


class Gate:
    """The gate of one node."""

    def __init__(
        self,
        slots: Slots,
        judge: Judge,
        resources: PodResources,
        pods: Known,
        find: Find,
        refused: Refused,
    ) -> None:
        self._slots = slots
        self._judge = judge
        self._resources = resources
        self._pods = pods
        self._find = find
        self._refused = refused
        self._times: Counter[str] = Counter()
        """How often each slot was given to somebody."""

    def allocated(self, name: str) -> None:
        """Kubelet has given the slot to a container."""
        self._times[name] += 1
        try:
            self._slots.close(name)
        except OSError as error:  # kubelet would fail the pod for good; this way its container cannot be created
            log.error("%s %s cannot be closed: %s", SLOT, name, error)

    async def starting(self, name: str) -> None:
        """Open the slot for the container that has it.  Raises Closed if it must not start."""
        times = self._times[name]
        pod, position = await self._whose(name)
        if self._times[name] != times:
            raise Closed(f"kubelet has given {SLOT} {name} to another container meanwhile")
        container = pod.containers[position]
        where = f"container {container.name} of pod {pod.key}"
        try:
            injection = self._admitted(pod, position)
            self._judge.starting(pod, position)
            sources = {each.destination: each.source for each in injection.mounts}
            self._slots.open(name, f"{pod.metadata.uid}/{container.name}", sources)
        except OSError as error:
            raise Closed(f"{where}: {SLOT} {name} cannot be opened: {error}") from None
        except ValueError as error:  # a Refusal, or what a dialect cannot make sense of
            refusal = error if isinstance(error, Refusal) else Refusal("metadata.annotations", "", str(error))
            self._refused(pod, container.name, refusal)
            self.allocated(name)
            raise Closed(f"{where}: {error}") from None

    def _admitted(self, pod: manifest.Pod, position: int) -> Injection:
        machine = self._judge.machine
        if pod.spec.node_name != machine.name:
            elsewhere = f"the pod is bound to node {pod.spec.node_name or '(none)'}, not to {machine.name}"
            raise Refusal("spec.nodeName", pod.spec.node_name, elsewhere)
        injection = self._judge.admit(pod)[position]
        for mount in injection.mounts:
            if mount.destination not in ENTRIES and mount not in machine.driver:
                path = mount.destination
                raise Refusal("spec.nodeName", machine.name, f"it needs {path}, which only a node with NRI can mount")
        # NVIDIA's runtime shows a container no other cards than those it names, and libsubak has its file.
        given = {*machine.driver_env, isolation.CUDA_CARDS, isolation.CARDS}
        env = {name: value for name, value in injection.env.items() if name not in given}
        if wrong := downward.mismatch(pod, position, env):
            raise Refusal("metadata.annotations", "", f"{wrong}: let Subak's webhook and scheduler set it")
        return injection

    async def _whose(self, name: str) -> tuple[manifest.Pod, int]:
        """The container that has the slot: its pod, and its position there."""
        uid, _, container = self._slots.owners.get(name, "").partition("/")
        pod = self._pods.get(uid) if uid else None
        if pod is None:
            pod, container = await self._asked(name)
        position = next((n for n, each in enumerate(pod.containers) if each.name == container), None)
        if position is None:
            raise Closed(f"pod {pod.key} has no container {container}, which has {SLOT} {name} by kubelet's word")
        return pod, position

    async def _asked(self, name: str) -> tuple[manifest.Pod, str]:
        try:
            holder = await self._resources.holder(SLOT, name)
            pod = await self._find(holder.namespace, holder.pod)
        except NoAnswer as error:
            raise Closed(str(error)) from None
        except Exception as error:
            raise Closed(f"the pod that has {SLOT} {name} cannot be read: {error}") from None
        if pod is None or pod.finished:
            raise Closed(f"{holder} is gone")
        return pod, holder.container
