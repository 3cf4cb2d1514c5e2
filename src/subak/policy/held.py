"""What a bound pod holds: by its annotations, or, where they do not say, by what it asked for.

A pod whose record is missing or malformed still uses cards.  Its amounts are taken from those that we would have
chosen, so that they are not promised again; a warning says so.
"""

from __future__ import annotations

from subak.dialects.interpreter import Interpreter
from subak.model import manifest
from subak.model.node import Node
from subak.model.placement import Placement
from subak.model.request import Request
from subak.policy.on_node import on_node
from subak.snapshot.cluster import Resources, Snapshot


def held(
    interpreter: Interpreter, snapshot: Snapshot, pod: manifest.Pod, node: Node
) -> tuple[Placement, Resources, list[str]]:
    """The pod's placement and plain resources, and what was not as it should be.  Never raises."""
    warnings: list[str] = []
    try:
        request = interpreter.request(pod)
    except ValueError as error:
        warnings.append(f"pod {pod.key}: {error}; what it asks for is unknown")
        request = Request()
    try:
        placement = interpreter.placement(pod, node)
    except ValueError as error:
        warnings.append(f"pod {pod.key}: {error}; which cards it holds is unknown")
        placement = Placement(node.name)
    if request.claims and not placement.grants:
        placement = _assumed(snapshot, pod, node, request, warnings)
    unknown = {share.id for grant in placement.grants for share in grant.shares if node.device(share.id) is None}
    for id in sorted(unknown):
        warnings.append(f"pod {pod.key} holds card {id}, which node {node.name} does not have; not counted")
    return placement, request.needs.resources, warnings


def _assumed(snapshot: Snapshot, pod: manifest.Pod, node: Node, request: Request, warnings: list[str]) -> Placement:
    grants = on_node(node, snapshot.cards(node.name), request)
    silent = f"pod {pod.key} does not say which cards of {node.name} it holds"
    if not isinstance(grants, tuple):
        warnings.append(f"{silent}, and fits on none; not counted")
        return Placement(node.name)
    warnings.append(f"{silent}; assumed")
    return Placement(node.name, grants)
