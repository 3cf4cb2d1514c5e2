"""The scheduler without its loop: what it knows, and what it wants done.

Every pod is in one state.  *Waiting*: in the line.  *Assumed*: decided and booked, until it is seen bound.  *Held*:
bound, booked by what its annotations say.  Bookings are made before a binding is sent and given back only when the pod
is gone, has finished, or its binding was refused; so no card is promised twice, and a pod is never in the line while it
may be bound.  Nothing is stored: a new core that is told all nodes and pods knows everything again.
"""

from __future__ import annotations

from collections.abc import Callable

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Cure, Reason, Refusal
from subak.model.request import Request
from subak.policy.explain import Explanation, explain
from subak.policy.held import held
from subak.policy.place import place
from subak.policy.quota import Quotas
from subak.scheduler.messages import (
    Bind,
    BindFailed,
    DeviceGone,
    DeviceSeen,
    Event,
    Instruction,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    QuotasSeen,
    Report,
    Warn,
)
from subak.scheduler.waiting import Line, Ticket
from subak.snapshot.cluster import Snapshot

GATED = "scheduling gates"
MOST_PER_CYCLE = 1_000


def everything(pod: manifest.Pod) -> bool:
    """Serve all pods, as on one machine."""
    return True


class Core:
    """Events in, instructions out."""

    def __init__(
        self, interpreter: Interpreter | None = None, serves: Callable[[manifest.Pod], bool] = everything
    ) -> None:
        self.interpreter = interpreter or Interpreter()
        self.snapshot = Snapshot()
        self.quotas = Quotas(self.interpreter.quota_units)
        self._serves = serves
        self._line = Line()
        self._pods: dict[str, manifest.Pod] = {}
        self._assumed: dict[str, Ticket] = {}
        self._written: dict[str, dict[str, str]] = {}
        self._on_node: dict[str, set[str]] = {}
        self._nodes: dict[str, manifest.Node] = {}
        self._devices: dict[str, manifest.Device] = {}
        self._told: dict[str, str] = {}
        self._explained: dict[Request, Explanation] = {}
        self._out: list[Instruction] = []
        self._arrivals = 0

    def __len__(self) -> int:
        """How many pods have no place yet."""
        return len(self._line)

    def handle(self, event: Event) -> None:
        """Take in what happened.  The same news twice does no harm, old news about a bound pod neither."""
        match event:
            case PodSeen(pod):
                self._pod_seen(pod)
            case PodGone(key):
                self._release(key)
            case NodeSeen(node):
                self._nodes[node.name] = node
                self._describe(node.name)
            case NodeGone(name):
                self._nodes.pop(name, None)
                self.snapshot.remove(name)
            case DeviceSeen(device):
                self._devices[device.name] = device
                self._describe(device.name)
            case DeviceGone(name):
                self._devices.pop(name, None)
                self._describe(name)
            case QuotasSeen(namespace, quotas):
                self._out += [Warn(text) for text in self.quotas.replace(namespace, quotas)]
                self._cured(Cure.QUOTA_CHANGED)
            case BindFailed(key, uid, _):
                if key in self._assumed and self._pods[key].metadata.uid == uid:
                    self._line.fail(self._assumed.pop(key))
                    self._written.pop(key, None)
                    self._give_back(key)

    def cycle(self, now: float, most: int = MOST_PER_CYCLE) -> list[Instruction]:
        """Decide what can be decided now: at most so many pods."""
        for _ in range(most):
            ticket = self._line.pop(now)
            if ticket is None:
                break
            self._decide(ticket, now)
        out, self._out = self._out, []
        return out

    def wakes_at(self) -> float | None:
        """When the next cycle is due though nothing happens: 0 for at once, None if only an event can bring work."""
        return 0.0 if self._line.ready else self._line.next_pause_ends()

    # Pods

    def _pod_seen(self, pod: manifest.Pod) -> None:
        known = self._pods.get(pod.key)
        if known is not None and known.metadata.uid != pod.metadata.uid:
            self._release(pod.key)  # another pod of the same name
            known = None
        if pod.finished:
            self._release(pod.key)
        elif pod.spec.node_name:
            self._hold(pod)
        elif pod.key not in self._assumed and not (known is not None and known.spec.node_name):
            self._enqueue(pod)

    def _hold(self, pod: manifest.Pod) -> None:
        """Book what a bound pod holds."""
        known = self._pods.get(pod.key)
        self._pods[pod.key] = pod
        if known is not None and known.spec.node_name == pod.spec.node_name and known.annotations == pod.annotations:
            return  # most updates of a running pod are about its status
        self._line.remove(pod.key)
        self._assumed.pop(pod.key, None)
        self._told.pop(pod.key, None)
        self._on_node.setdefault(pod.spec.node_name, set()).add(pod.key)
        node = self.snapshot.node(pod.spec.node_name)
        if node is not None and not self._as_booked(pod):
            self._book(pod, node)

    def _as_booked(self, pod: manifest.Pod) -> bool:
        """Whether the pod carries the very record that we wrote when we booked it: then there is nothing to read."""
        written, booking = self._written.pop(pod.key, None), self.snapshot.bookings.get(pod.key)
        if written is None or booking is None or booking.placement.node != pod.spec.node_name:
            return False
        return written.items() <= pod.annotations.items()

    def _book(self, pod: manifest.Pod, node: Node) -> None:
        known = self.snapshot.bookings.get(pod.key)
        self._uncharge(pod.key)
        placement, resources, warnings = held(self.interpreter, self.snapshot, pod, node)
        self.snapshot.restore(pod.key, placement, resources)
        self.quotas.charge(pod.namespace, placement)
        if known is None or known.placement != placement:
            self._out += [Warn(text) for text in warnings]

    def _enqueue(self, pod: manifest.Pod) -> None:
        """Put a pod in the line; what it asks for may have changed."""
        self._pods[pod.key] = pod
        if not self._serves(pod) or pod.metadata.deletion_timestamp is not None:
            self._line.remove(pod.key)
            return
        try:
            request = self.interpreter.request(pod)
        except Refusal as refusal:
            self._line.remove(pod.key)
            self._tell(pod, refusal.message, {})
            return
        if GATED in request.needs.unsupported:
            self._line.remove(pod.key)
            return
        priority = pod.spec.priority or 0
        standing = self._line.get(pod.key)
        if standing is not None and standing.request == request and standing.priority == priority:
            return  # nothing that matters has changed: it stays where it stands
        self._arrivals += 1
        self._line.add(Ticket(pod.key, pod.namespace, request, priority, self._arrivals))

    def _release(self, key: str) -> None:
        """A pod is gone or has finished."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._on_node.get(pod.spec.node_name, set()).discard(key)
        self._line.remove(key)
        self._assumed.pop(key, None)
        self._written.pop(key, None)
        self._told.pop(key, None)
        self._give_back(key, pod)

    def _give_back(self, key: str, pod: manifest.Pod | None = None) -> None:
        if self._uncharge(key, pod):
            self._cured(Cure.POD_GONE)
            self._cured(Cure.QUOTA_CHANGED)

    def _uncharge(self, key: str, pod: manifest.Pod | None = None) -> bool:
        booking = self.snapshot.forget(key)
        owner = pod or self._pods.get(key)
        if booking is not None and owner is not None:
            self.quotas.charge(owner.namespace, booking.placement, -1)
        return booking is not None

    # Nodes

    def _describe(self, name: str) -> None:
        """A node, or the Device object that speaks of it, has changed."""
        node = self._nodes.get(name)
        if node is None:
            return
        digest, warnings = self.interpreter.node(node, self._devices.get(name))
        known = self.snapshot.node(name)
        if digest == known:
            return  # most updates of a node are heartbeats
        self._out += [Warn(text) for text in warnings]
        self.snapshot.put([digest])
        if known is None or [each.id for each in known.devices] != [each.id for each in digest.devices]:
            for key in sorted(self._on_node.get(name, ())):
                self._book(self._pods[key], digest)
        self._cured(Cure.NODE_CHANGED)

    def _cured(self, cure: Cure) -> None:
        self._explained.clear()
        self._line.cure(cure)

    # Decisions

    def _decide(self, ticket: Ticket, now: float) -> None:
        pod, request = self._pods[ticket.key], ticket.request
        exceeded = self.quotas.refuse_claims(pod.namespace, request.claims)
        placement = None if exceeded else place(self.snapshot, request)
        if placement is not None:
            exceeded = self.quotas.refuse(pod.namespace, placement)
        if placement is not None and exceeded is None:
            self._bind(pod, ticket, placement, now)
        elif exceeded is not None:
            self._line.refuse(ticket, Reason.RESOURCE_QUOTA_NOT_FIT.cures)
            self._tell(pod, exceeded, {Reason.RESOURCE_QUOTA_NOT_FIT: len(self.snapshot)})
        else:
            why = self._explained.get(request)
            if why is None:
                why = self._explained[request] = explain(self.snapshot, request)
            cures = frozenset[Cure]().union(*(reason.cures for reason in why.reasons), {Cure.NODE_CHANGED})
            self._line.refuse(ticket, cures)
            self._tell(pod, str(why), why.reasons)

    def _bind(self, pod: manifest.Pod, ticket: Ticket, placement: Placement, now: float) -> None:
        node = self.snapshot.node(placement.node)
        assert node is not None, "a placement names a node of the snapshot"
        self.snapshot.assume(pod.key, placement, ticket.request.needs.resources)
        self.quotas.charge(pod.namespace, placement)
        self._assumed[pod.key] = ticket
        self._line.wake_next(ticket.group)
        self._told.pop(pod.key, None)
        annotations = self._written[pod.key] = self.interpreter.annotations(pod, placement, node, int(now * 10**9))
        self._out.append(Bind(pod.key, pod.metadata.uid, placement.node, annotations))

    def _tell(self, pod: manifest.Pod, message: str, reasons: dict[Reason, int]) -> None:
        """Report, unless the user has just been told the same."""
        if self._told.get(pod.key) != message:
            self._told[pod.key] = message
            self._out.append(Report(pod.key, pod.metadata.uid, message, reasons))
