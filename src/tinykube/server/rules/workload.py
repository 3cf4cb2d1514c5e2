"""What a server sets in Deployments, ReplicaSets, DaemonSets and Jobs by itself.

The generation counts the changes of a spec; a Deployment's annotations count too, since its ReplicaSets get them.  A
DaemonSet counts the changes of its template in an annotation.  A Job gets labels for its pods, and a selector.
"""

from __future__ import annotations

from typing import Any

from tinykube.server import digits, kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules.defaults import workload as defaults
from tinykube.server.rules.defaults.workload import TEMPLATE_GENERATION
from tinykube.server.rules.validation.job import own_labels

Json = dict[str, Any]

_UID = "batch.kubernetes.io/controller-uid"


def creation(kind: Kind, object: Json) -> None:
    """Prepare a new object, in place."""
    object["metadata"]["generation"] = 1
    if kind is kinds.DAEMON_SET:
        given = object["metadata"].get("annotations", {}).get(TEMPLATE_GENERATION, "")
        _count(object, max(digits.whole(given) or 1, 1))
    elif kind is kinds.JOB and not object["spec"].get("manualSelector"):
        _select(object)
    if kind is kinds.JOB:
        defaults.labels(object)


def update(kind: Kind, new: Json, old: Json) -> None:
    """Prepare what an object is to become, in place."""
    if kind is kinds.DAEMON_SET:
        changed = new["spec"]["template"] != old["spec"]["template"]
        _count(new, int(old["metadata"]["annotations"][TEMPLATE_GENERATION]) + changed)
    changed = new["spec"] != old["spec"]
    if kind is kinds.DEPLOYMENT:
        changed |= new["metadata"].get("annotations") != old["metadata"].get("annotations")
    new["metadata"]["generation"] = old["metadata"].get("generation", 0) + changed


def _count(object: Json, generation: int) -> None:
    given = object["metadata"].get("annotations", {})
    object["metadata"]["annotations"] = {**given, TEMPLATE_GENERATION: str(generation)}


def _select(job: Json) -> None:
    labels = own_labels(job)
    spec = job["spec"] = dict(job["spec"])
    template, selector = spec["template"], spec.get("selector", {})
    given = template["metadata"].get("labels", {})
    all_labels = {**labels, **given}
    if job["metadata"].get("labels") is given:
        job["metadata"]["labels"] = all_labels
    spec["template"] = {**template, "metadata": {**template["metadata"], "labels": all_labels}}
    spec["selector"] = {**selector, "matchLabels": {_UID: labels[_UID], **selector.get("matchLabels", {})}}
