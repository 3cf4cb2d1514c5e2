"""Nodes where containers get their cards by variables of their pod (`model.variables`), for want of NRI.

    passes   every container that gets cards asks for a slot and has the variables, and none is an init container

Admission gives pods both.  One that was created without it would start with no limits there.  Kubelet does not say when
it starts an ordinary init container with a slot, so nobody could give that its own.

Variables of a pod win over those of a vendor's device plugin, which names MIG instances that it has cut.  So pods with
variables stay away from such cards where our agent does not run.
"""

from __future__ import annotations

from collections.abc import Hashable

from subak.model import manifest, variables
from subak.model.manifest import Role
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Request
from subak.policy import Filter

WAY = "plugin"
"""`Node.way` of such nodes."""


class ByVariables(Filter):
    """Keeps pods off that would find their cards only where NRI is."""

    name = "by-variables"

    def reads(self, pod: manifest.Pod) -> Hashable | None:
        """The containers that are ready for such nodes."""
        ready = [n for n, each in enumerate(pod.containers) if each.env and variables.slotted(each)]
        return tuple(ready) or None

    def key(self, request: Request) -> Hashable:
        return request.read(self.name), tuple((claim.containers, claim.role) for claim in request.claims)

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        if not request.claims:
            return None
        if not node.way and node.cut and request.read(self.name) is not None:
            detail = "the pod's own variables would hide the MIG instances that the vendor's agent names"
            return NodeRefusal(Reason.NODE_ISOLATION_MISSING, detail)
        if node.way != WAY:
            return None
        if any(claim.role is Role.INIT for claim in request.claims):
            return NodeRefusal(Reason.NODE_WITHOUT_NRI, "no NRI: init containers get no cards there")
        ready = request.read(self.name)
        assert ready is None or isinstance(ready, tuple)
        if {each for claim in request.claims for each in claim.containers} <= {*(ready or ())}:
            return None
        return NodeRefusal(
            Reason.NODE_WITHOUT_NRI,
            f"no NRI: the pod has no {variables.SLOT} and no variables; create it again while Subak's webhook is up",
        )
