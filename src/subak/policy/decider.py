"""The state of a cluster, and decisions on it: what the scheduler, `place`, `explain`, `why` and `run` share.

    decide ──┬──> Placement ── assume ──> booked ── written ──> annotations
             ├──> Exceeded     the quota of the namespace has no room
             └──> None         no node fits; `explain` says why

`hold` books what a running pod holds.  Time is an argument, and nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence, Set
from dataclasses import dataclass

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.reason import Reason
from subak.model.request import Request
from subak.policy.explain import Explanation, Group, explaining, explanation
from subak.policy.held import Holding, held
from subak.policy.place import place
from subak.policy.quota import Quotas
from subak.policy.registry import shaped
from subak.policy.tally import Tally
from subak.policy.volumes import Volumes
from subak.snapshot.cluster import Booking, Snapshot


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The quota of the pod's namespace has no room; that holds for all nodes."""

    message: str
    reasons: dict[str, int]


class Decider:
    """Nodes, bookings and quotas, and how pods are decided on them; `interpreter` reads pods and nodes."""

    def __init__(self, interpreter: Interpreter, nodes: Iterable[Node] = ()) -> None:
        self.interpreter = interpreter
        self.quotas = Quotas(interpreter.quota_units)
        self.snapshot = Snapshot(nodes, self.quotas.amounts)
        self.quotas.used = self.snapshot.used

    @property
    def volumes(self) -> Volumes:
        """All storage objects, and what pods are promised of them."""
        return self.snapshot.watched(Volumes)

    def request(self, pod: manifest.Pod) -> Request:
        """What an admitted pod asks for, with all that policies read of it.  Raises Refusal if that cannot be."""
        return shaped(self.snapshot, self.interpreter.request(pod), pod)

    def again(self, request: Request, pod: manifest.Pod) -> Request:
        """The pod's request with all that policies read of the pod in this epoch of the snapshot."""
        return shaped(self.snapshot, request, pod)

    def decide(
        self,
        namespace: str,
        request: Request,
        among: Sequence[str] | None = None,
        within: Set[str] | None = None,
    ) -> Placement | Exceeded | None:
        """Where a pod of the namespace goes.  Books nothing.  `among` and `within` are those of `place`."""
        exceeded = self.quotas.refuse_claims(namespace, request.claims)
        placement = None if exceeded else place(self.snapshot, request, among, within)
        if placement is not None:
            exceeded = self.quotas.refuse(namespace, placement)
        if exceeded is not None:
            return Exceeded(exceeded, {Reason.RESOURCE_QUOTA_NOT_FIT: len(self.snapshot)})
        return placement

    def explain(self, pod: manifest.Pod) -> Explanation:
        """What every node says; where the namespace's quota has no room, that comes before all of them.

        Raises Refusal if the pod asks for something that cannot be.
        """
        steps = self.explaining(pod)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: Explanation = end.value
                return found

    def explaining(self, pod: manifest.Pod) -> Generator[int, None, Explanation]:
        """The same step by step, for who has other things to do meanwhile."""
        request = self.request(pod)
        answer = self.decide(pod.namespace, request)
        if not isinstance(answer, Exceeded):
            tally = Tally(named=True)
            yield from explaining(self.snapshot, request, tally)
            return explanation(tally)
        nodes = tuple(node.name for node in self.snapshot)
        group = Group(Reason.RESOURCE_QUOTA_NOT_FIT, nodes, answer.message)
        return Explanation(len(nodes), (), (group,), answer.reasons)

    def assume(self, key: str, pod: manifest.Pod, request: Request, placement: Placement) -> Booking:
        """Book what was decided for a pod.  Raises Overcommitted if it was decided wrongly."""
        return self.snapshot.assume(key, placement, request.needs.resources, pod)

    def written(self, pod: manifest.Pod, placement: Placement, now_ns: int) -> dict[str, str]:
        """The annotations that record the placement on the pod."""
        node = self.snapshot.node(placement.node)
        assert node is not None, "a placement names a node of the snapshot"
        return self.interpreter.annotations(pod, placement, node, now_ns)

    def hold(self, pod: manifest.Pod, node: Node) -> Holding:
        """Book what a running pod holds on this node."""
        holding = held(self.interpreter, pod, node)
        self.snapshot.restore(pod.key, holding.placement, holding.resources, holding.counted, pod)
        return holding
