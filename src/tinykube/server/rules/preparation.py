"""What becomes of an object before it is judged: what users may not set is set right.

The status of a new object is empty, a write of the spec leaves the status alone and the other way round, and the
generation counts the changes of a spec.
"""

from __future__ import annotations

import copy
from typing import Any

from tinykube.server import kinds, schema
from tinykube.server.kinds import Kind
from tinykube.server.rules import service, workload
from tinykube.server.rules.admission import View
from tinykube.server.rules.decoding import zero
from tinykube.server.rules.qos import qos_class
from tinykube.server.rules.validation.pod_update import same

Json = dict[str, Any]

_LABEL = "kubernetes.io/metadata.name"
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "lastProbeTime": None,
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def creation(kind: Kind, object: Json, view: View, dry_run: bool) -> None:
    """Prepare a new object, in place."""
    meta = object["metadata"]
    if kind.status and kind is not kinds.NODE:
        object["status"] = zero((schema.of(kind).properties or {})["status"])
        if object["status"] is None or kind.custom:
            del object["status"]
    if kind is kinds.POD:
        meta["generation"] = 1
        _pod(object)
    elif kind is kinds.SERVICE:
        service.creation(object, view, dry_run)
        if object["spec"].get("type") == "ExternalName":
            object["spec"].pop("internalTrafficPolicy", None)
    elif kind is kinds.NAMESPACE:
        object["status"] = {"phase": "Active"}
        finalizers = object["spec"].get("finalizers", [])
        if "kubernetes" not in finalizers:
            object["spec"] = {**object["spec"], "finalizers": [*finalizers, "kubernetes"]}
        meta["labels"] = {**meta.get("labels", {}), _LABEL: meta.get("name", "")}
    elif kind is kinds.NODE:
        object["spec"].pop("configSource", None)
        object["status"].pop("config", None)
    elif kind is kinds.SERVICE_ACCOUNT:
        _clean(object)
    elif kind is kinds.LEASE:
        _uncoordinated(object["spec"], {})
    elif kind in kinds.WORKLOADS:
        workload.creation(kind, object)
    elif kind is kinds.PRIORITY_CLASS or kind.custom:
        meta["generation"] = 1


def update(kind: Kind, new: Json, old: Json, view: View, subresource: str, dry_run: bool) -> None:
    """Prepare what an object is to become, in place."""
    meta, before = new["metadata"], old["metadata"]
    if kind.custom and subresource == "status":
        new.update({key: value for key, value in old.items() if key != "status"})
        new["metadata"] = {**before, "managedFields": meta.get("managedFields", [])}
        new["metadata"]["resourceVersion"] = meta.get("resourceVersion", before["resourceVersion"])
        return
    for key in ("generation", *_KEPT[:2]):
        if key in before and (key != "uid" or not meta.get("uid")):
            meta[key] = before[key]
        elif key == "generation":
            meta.pop(key, None)
    if not meta.get("resourceVersion") and "resourceVersion" in before:
        meta["resourceVersion"] = before["resourceVersion"]
    if subresource == "status":
        _status(kind, new, old)
    else:
        _spec(kind, new, old, view, subresource, dry_run)
    for key in _KEPT[2:]:
        if key in before:
            meta[key] = before[key]


def _spec(kind: Kind, new: Json, old: Json, view: View, subresource: str, dry_run: bool) -> None:
    meta = new["metadata"]
    if kind.status:
        if "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
    if kind is kinds.POD:
        _undefined(new["spec"])
        if not same(new["spec"], old["spec"]):
            meta["generation"] = meta.get("generation", 0) + 1
    elif kind.custom:
        if _content(new, kind) != _content(old, kind):
            meta["generation"] = meta.get("generation", 0) + 1
    elif kind is kinds.NAMESPACE:
        if subresource != "finalize":
            new["spec"] = old["spec"]
        meta["labels"] = {**meta.get("labels", {}), _LABEL: meta.get("name", "")}
    elif kind is kinds.SERVICE:
        service.update(new, old, view, dry_run)
        if new["spec"].get("type") == "ExternalName":
            new["spec"].pop("internalTrafficPolicy", None)
        if new["spec"].get("type") != "LoadBalancer":
            new["status"] = {**new["status"], "loadBalancer": {}}
    elif kind in kinds.WORKLOADS:
        workload.update(kind, new, old)
    elif kind is kinds.SERVICE_ACCOUNT:
        _clean(new)
    elif kind is kinds.LEASE:
        _uncoordinated(new["spec"], old["spec"])
    elif kind is kinds.NODE and "configSource" not in old["spec"]:
        new["spec"].pop("configSource", None)


def _status(kind: Kind, new: Json, old: Json) -> None:
    new["spec"] = old["spec"]
    if kind is kinds.POD:
        meta, status, before = new["metadata"], new["status"], old["status"]
        meta.pop("deletionTimestamp", None)
        meta.pop("ownerReferences", None)
        if "ownerReferences" in old["metadata"]:
            meta["ownerReferences"] = old["metadata"]["ownerReferences"]
        if not status.get("qosClass") and "qosClass" in before:
            status["qosClass"] = before["qosClass"]
        _generations(status, before)
    elif kind is kinds.DEPLOYMENT:
        new["metadata"]["labels"] = old["metadata"].get("labels", {})
        if not new["metadata"]["labels"]:
            del new["metadata"]["labels"]
    elif kind is kinds.NODE and "config" not in old["status"]:
        new["status"].pop("config", None)


def _generations(status: Json, before: Json) -> None:
    """Who does not know of observed generations does not remove them."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions", ()):
        known.setdefault(condition["type"], []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions", ()):
        seen = known.get(condition["type"])
        generation = seen.pop(0) if seen else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def _pod(pod: Json) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    status: Json = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [{**_GATED, "lastTransitionTime": meta.get("creationTimestamp")}]
    pod["status"] = status
    _undefined(spec)
    if "affinity" in spec:
        spec["affinity"] = _matched_affinity(spec["affinity"], meta.get("labels", {}))
    if any("matchLabelKeys" in each for each in spec.get("topologySpreadConstraints", ())):
        constraints = copy.deepcopy(spec["topologySpreadConstraints"])
        for each in constraints:
            _match(each, meta.get("labels", {}))
        spec["topologySpreadConstraints"] = constraints


def _undefined(spec: Json) -> None:
    """Fields of features that are not switched on."""
    spec.pop("schedulingGroup", None)
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            if "lifecycle" in container and "stopSignal" in container["lifecycle"]:
                kept = {key: value for key, value in container["lifecycle"].items() if key != "stopSignal"}
                if kept:
                    container["lifecycle"] = kept
                else:
                    del container["lifecycle"]


def _matched_affinity(affinity: Json, labels: dict[str, str]) -> Json:
    """Terms that mean `the same value as mine` get that value."""
    affinity = copy.deepcopy(affinity)
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind, {})
        for term in terms.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            _match(term, labels)
        for weighted in terms.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            _match(weighted.get("podAffinityTerm", {}), labels)
    return affinity


def _match(term: Json, labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name, ())
        if key in labels
    ]
    if added:
        selector["matchExpressions"] = [*selector.get("matchExpressions", ()), *added]


def _content(object: Json, kind: Kind) -> Json:
    """What counts as a change of a custom object's spec."""
    return {key: value for key, value in object.items() if key != "metadata" and not (kind.status and key == "status")}


def _clean(account: Json) -> None:
    if "secrets" in account:
        account["secrets"] = [{"name": each["name"]} if each.get("name") else {} for each in account["secrets"]]


def _uncoordinated(spec: Json, before: Json) -> None:
    for key in ("strategy", "preferredHolder"):
        if key not in before:
            spec.pop(key, None)
