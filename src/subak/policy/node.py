"""May a pod go to a node at all, cards aside?  Readiness, taints, selectors, and the dialect spoken.

Each rule is a reason with its number or name; what a pod demands and we do not honour yet refuses every node.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial

from subak.model.manifest import Expression, Taint, Toleration
from subak.model.node import Node
from subak.model.reason import NodeRefusal, Reason
from subak.model.request import Claim, Needs, Request
from subak.policy import Filter
from subak.snapshot.pool import Pool, Verdicts

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""What `spec.unschedulable` amounts to: Kubernetes lets a pod in that tolerates this taint."""

ANYBODY = Needs()
"""What the least demanding pod needs."""


class Terms(Filter):
    """The node's own terms: readiness, taints, and what the pod selects by labels."""

    name = "terms"

    def key(self, request: Request) -> Needs:
        return replace(request.needs, resources=())

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        return refuse_node(node, request.needs)

    def verdicts(self, pool: Pool, request: Request) -> Verdicts:
        needs, fine = self.key(request), None
        if unrestricted(needs):  # most nodes turn nobody away: they need no closer look
            fine = pool.verdicts((self.name, ANYBODY), partial(refuse_node, needs=ANYBODY))
        return pool.verdicts((self.name, needs), partial(refuse_node, needs=needs), fine)


class Offered(Filter):
    """Whether the node speaks the dialects of all claims, and their rules have nothing against it."""

    name = "offered"

    def key(self, request: Request) -> Hashable:
        return tuple([(claim.dialect, claim.rules.node_key) for claim in request.claims])

    def refuse(self, node: Node, request: Request) -> NodeRefusal | None:
        refusals = (refuse_dialect(node, claim) for claim in request.claims)
        return next((refusal for refusal in refusals if refusal is not None), None)


def refuse_node(node: Node, needs: Needs) -> NodeRefusal | None:
    """What keeps the pod off the node, whatever is free there."""
    if needs.unsupported:
        return NodeRefusal(Reason.NOT_SUPPORTED_YET, f"{', '.join(needs.unsupported)} not supported yet")
    if not node.ready:
        return NodeRefusal(Reason.NODE_NOT_READY, "not ready")
    if node.unschedulable and not tolerated(CORDON, needs):
        return NodeRefusal(Reason.NODE_UNSCHEDULABLE, "cordoned (unschedulable)")
    return refuse_taints(node, needs) or refuse_labels(node, needs)


def refuse_taints(node: Node, needs: Needs) -> NodeRefusal | None:
    """The first taint that keeps the pod off."""
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint, needs):
            return NodeRefusal(Reason.NODE_TAINT_NOT_TOLERATED, f"taint {_text(taint)} not tolerated")
    return None


def refuse_labels(node: Node, needs: Needs) -> NodeRefusal | None:
    """What the pod's node selector or node affinity has against the node."""
    for key, value in needs.selector:
        if node.labels.get(key) != value:
            return NodeRefusal(Reason.NODE_SELECTOR_MISMATCH, f"label {key}={value} missing")
    if needs.terms is not None and not any(holds(term, node) for term in needs.terms):
        return NodeRefusal(Reason.NODE_SELECTOR_MISMATCH, "required node affinity does not match")
    return None


def refuse_dialect(node: Node, claim: Claim) -> NodeRefusal | None:
    """Whether the node speaks the claim's dialect, by an agent that lives, and the claim's rules admit it."""
    if claim.dialect not in node.offers:
        return NodeRefusal(Reason.NODE_UNREGISTERED, f"{claim.dialect} not offered")
    if claim.dialect in node.dead:
        return NodeRefusal(Reason.NODE_AGENT_DEAD, node.dead[claim.dialect])
    return claim.rules.refuse_node(node)


def unrestricted(needs: Needs) -> bool:
    """Whether a node that turns nobody away takes the pod without a closer look."""
    return not needs.selector and needs.terms is None and not needs.unsupported


def tolerated(taint: Taint, needs: Needs) -> bool:
    """Whether the pod does not mind the taint."""
    return any(_tolerates(each, taint) for each in needs.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("Equal", ""):
        return bool(toleration.key) and toleration.value == taint.value
    return toleration.operator == "Exists"


def _text(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def holds(term: tuple[tuple[Expression, ...], tuple[Expression, ...]], node: Node) -> bool:
    """Whether a term of a node affinity selects the node."""
    labels, fields = term
    if not labels and not fields:
        return False  # an empty term selects nothing, as the API documents
    return all(line.holds(node.labels) for line in labels) and all(
        line.holds({"metadata.name": node.name}) for line in fields
    )
