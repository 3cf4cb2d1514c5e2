"""Decides for kube-scheduler: filter, prioritize, bind, preempt.

`filter` gives one node and books its cards for the pod, so that pods whose bindings are still under way count.  The
booking ends with the binding, with the pod's next filter, or when no bind has come in time.  Nothing is stored: a new
process that is asked to bind a pod which an earlier one booked decides again on that node, or refuses, and
kube-scheduler tries the pod again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from subak.model import manifest
from subak.model.reason import Reason, Refusal
from subak.policy.decider import Exceeded
from subak.scheduler.binder import NotBound
from subak.scheduler.extender import wire
from subak.scheduler.extender.victims import victims
from subak.scheduler.messages import Bind, BindFailed
from subak.scheduler.record import State
from subak.scheduler.service import Service

BOOKED_FOR = 60.0
"""Seconds until a booking is given up if no bind comes."""
LOCK_PATIENCE = 4.0
"""Seconds that a binding waits for the lock of its node; kube-scheduler waits five by default."""

OTHERS = "Subak has chosen another node"
UNKNOWN = "Subak does not know the node yet"
NOT_READY = "Subak has not seen all objects yet: try again"
STANDBY = "this replica of Subak does not lead: ask the one that does"
UNDER_WAY = "the pod's binding is under way"

UNRESOLVABLE = frozenset(
    {
        Reason.NODE_UNREGISTERED,
        Reason.NODE_AGENT_DEAD,
        Reason.NODE_WITHOUT_NRI,
        Reason.NODE_NOT_READY,
        Reason.NODE_UNSCHEDULABLE,
        Reason.NODE_TAINT_NOT_TOLERATED,
        Reason.NODE_SELECTOR_MISMATCH,
        Reason.NODE_ISOLATION_MISSING,
        Reason.CARD_TYPE_MISMATCH,
        Reason.CARD_UUID_MISMATCH,
        Reason.CARD_NOT_HEALTH,
        Reason.CARD_UNHEALTHY,
        Reason.CARD_CORDONED,
        Reason.NOT_SUPPORTED_YET,
    }
)
"""Reasons that no eviction cures."""


@dataclass(frozen=True, slots=True)
class Booked:
    """A decision that waits for its bind, and the timer that gives it up."""

    bind: Bind
    timer: asyncio.TimerHandle


class Extender:
    """Answers kube-scheduler on the core of a service that is running."""

    def __init__(self, service: Service, booked_for: float = BOOKED_FOR) -> None:
        self._service = service
        self._core = service.core
        self._booked_for = booked_for
        self._booked: dict[str, Booked] = {}
        self._binding: set[str] = set()

    def filter(self, args: wire.Args) -> wire.Filtered:
        """One node, booked for the pod, or what each node says."""
        whole = None if args.nodes is None else args.nodes.named()
        names = list(whole) if whole is not None else args.node_names or []
        try:
            answer = self._filter(args.pod, names)
        except Refusal as refusal:
            answer = wire.Filtered(failed_and_unresolvable_nodes=dict.fromkeys(names, refusal.message))
        if whole is not None:
            answer.nodes = wire.NodeList([whole[name] for name in answer.node_names or ()])
            answer.node_names = None
        return answer

    def _filter(self, pod: manifest.Pod, names: list[str]) -> wire.Filtered:
        if unready := self._unready():
            return wire.Filtered(error=unready)
        if not self._core.asks_for_cards(pod):
            return wire.Filtered(node_names=names)
        if pod.key in self._binding:
            return wire.Filtered(error=UNDER_WAY)
        self._give_up(pod.key)
        if self._core.state(pod.key) is State.WAITING:
            return wire.Filtered(error=f"Subak's own scheduler serves pods of {pod.spec.scheduler_name}")
        answer = self._core.place_within(pod, names, self._service.now())
        if isinstance(answer, Bind):
            self._book(answer)
            return wire.Filtered(node_names=[answer.node])
        if isinstance(answer, Exceeded):
            return wire.Filtered(node_names=[], failed_nodes=dict.fromkeys(names, answer.message))
        return self._explained(pod, names)

    def _unready(self) -> str:
        """Why nothing can be decided now; empty if it can."""
        if not self._service.ready.is_set():
            return NOT_READY
        return "" if self._service.leading else STANDBY

    def prioritize(self, args: wire.Args) -> list[wire.Priority]:
        """The booked node before all others."""
        names = args.node_names if args.nodes is None else list(args.nodes.named())
        booked = self._booked.get(args.pod.key)
        chosen = "" if booked is None else booked.bind.node
        return [wire.Priority(host=name, score=wire.HIGHEST if name == chosen else 0) for name in names or ()]

    async def bind(self, args: wire.BindingArgs) -> wire.Bound:
        """Send the one Binding, with the annotations and labels of the decision."""
        key = args.key
        if unready := self._unready():
            return wire.Bound(error=unready)
        if key in self._binding:
            return wire.Bound(error=UNDER_WAY)
        try:
            bind = self._decided(args)
        except Refusal as refusal:
            return wire.Bound(error=refusal.message)
        if isinstance(bind, str):
            return wire.Bound(error=bind)
        self._binding.add(key)
        try:
            await self._service.carry_out(bind, LOCK_PATIENCE)
        except NotBound as problem:
            return wire.Bound(error=str(problem))
        finally:
            self._binding.discard(key)
        return wire.Bound()

    def preempt(self, args: wire.PreemptionArgs) -> wire.Preemption:
        """The candidates on which the pod fits once the victims are gone, with further victims where cards need it."""
        proposed = {
            name: ([each.uid for each in found.pods or ()], found.violations)
            for name, found in (args.node_name_to_meta_victims or {}).items()
        } or {
            name: ([each.metadata.uid for each in found.pods or ()], found.violations)
            for name, found in (args.node_name_to_victims or {}).items()
        }
        remaining: dict[str, wire.Victims] = {}
        for name, (uids, violations) in proposed.items():
            found = self._victims(args.pod, name, uids)
            if found:
                pods = [wire.Victim(uid=uid) for uid in found]
                remaining[name] = wire.Victims(pods=pods, violations=violations)
        return wire.Preemption(node_name_to_meta_victims=remaining)

    def _victims(self, pod: manifest.Pod, node: str, uids: list[str]) -> list[str]:
        """The UIDs of those who must go from a node; empty if that does not help."""
        try:
            if not self._core.asks_for_cards(pod):
                return uids
            found = victims(self._core, pod, node, frozenset(uids))
        except Refusal:
            return []
        return [] if found is None else [each.metadata.uid for each in found]

    def _decided(self, args: wire.BindingArgs) -> Bind | str:
        """The decision for a pod and a node: the booked one, or a new one; else what is wrong."""
        booked = self._booked.get(args.key)
        if booked is not None and booked.bind.uid == args.pod_uid and booked.bind.node == args.node:
            booked.timer.cancel()
            del self._booked[args.key]
            return booked.bind
        self._give_up(args.key)
        pod = self._service.feed.pods.objects.get(args.key)
        if pod is None or pod.metadata.uid != args.pod_uid:
            return "Subak does not know the pod yet, or it is gone"
        if pod.spec.node_name:
            return f"the pod has the node {pod.spec.node_name}"
        if not self._core.asks_for_cards(pod):
            return Bind(args.key, args.pod_uid, args.node, {})
        answer = self._core.place_within(pod, [args.node], self._service.now())
        if isinstance(answer, Bind):
            return answer
        return answer.message if isinstance(answer, Exceeded) else f"node {args.node} has no room for the pod any more"

    def _book(self, bind: Bind) -> None:
        timer = asyncio.get_running_loop().call_later(self._booked_for, self._give_up, bind.key)
        self._booked[bind.key] = Booked(bind, timer)

    def _give_up(self, key: str) -> None:
        """Free what was booked for a pod whose bind has not come."""
        booked = self._booked.pop(key, None)
        if booked is not None:
            booked.timer.cancel()
            self._service.tell(BindFailed(key, booked.bind.uid, "kube-scheduler has not bound it"))

    def _explained(self, pod: manifest.Pod, names: Collection[str]) -> wire.Filtered:
        """What each node says."""
        failed, unresolvable = dict.fromkeys(names, UNKNOWN), {}
        explanation = self._core.explain(pod)
        for name in explanation.fitting:
            if name in failed:
                failed[name] = OTHERS
        for group in explanation.groups:
            text = f"{group.detail} ({group.reason})"
            for name in group.nodes:
                if name not in failed:
                    continue
                failed[name] = text
                if group.reason in UNRESOLVABLE:
                    unresolvable[name] = failed.pop(name)
        return wire.Filtered(node_names=[], failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)
