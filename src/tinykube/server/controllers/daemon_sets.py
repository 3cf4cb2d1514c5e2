"""A DaemonSet has one pod on each node that takes it.

Each pod says by its node affinity which node it is for, and the scheduler brings it there.  It stays where nodes are
cordoned, under pressure or away for a while.  A changed template replaces the pods, as many at a time as may be
unavailable.
"""

from __future__ import annotations

import math
from typing import Any

from tinykube.server import selectors
from tinykube.server.controllers.owners import (
    BURST,
    Owners,
    fingerprint,
    has_ended,
    is_going,
    is_ready,
    pause_after,
    soonest,
    wait_for,
)
from tinykube.server.controllers.replica_sets import RETRY_SECONDS
from tinykube.server.kinds import DAEMON_SET, NODE
from tinykube.server.rules.defaults.workload import TEMPLATE_GENERATION
from tinykube.status import ApiError

Json = dict[str, Any]

_HASH = "controller-revision-hash"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATED = (
    ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
)  # fmt: skip


def sync(owners: Owners, daemon_set: Json) -> float | None:
    """Make things as a DaemonSet wants them; gives the seconds after which to look again."""
    again = None
    if not is_going(daemon_set):
        try:
            again = _balance(owners, daemon_set)
        except ApiError:  # an event says so
            again = RETRY_SECONDS
    return soonest(again, _report(owners, daemon_set))


def _balance(owners: Owners, daemon_set: Json) -> float | None:
    here = _by_node(owners, daemon_set)
    nodes = {each["metadata"]["name"]: each for each in owners.store.list(NODE)}
    again, missing = None, []
    for name in sorted(here.keys() | nodes.keys()):
        node, pods = nodes.get(name), here.get(name, [])
        wanted = node is not None and takes(node, daemon_set, ("NoSchedule", "NoExecute"))
        stays = node is not None and takes(node, daemon_set, ("NoExecute",))
        running = [pod for pod in pods if not has_ended(pod)]
        for pod in [pod for pod in running if not is_going(pod)][1 if stays else 0 :]:
            owners.delete(daemon_set, pod)
        if not wanted or running:
            continue
        pause = pause_after((pod for pod in pods if has_ended(pod)), owners.now)
        if pause:
            again = soonest(again, pause)
            continue
        for pod in pods:
            owners.delete(daemon_set, pod)
        missing.append(name)
    for name in missing[:BURST]:
        owners.make(daemon_set, _pod(daemon_set, name))
    _replace(owners, daemon_set, len(nodes))
    return 0.0 if len(missing) > BURST else again


def _by_node(owners: Owners, daemon_set: Json) -> dict[str, list[Json]]:
    """Pods by the nodes that they are on, or for."""
    found: dict[str, list[Json]] = {}
    for pod in owners.owned(daemon_set):
        found.setdefault(pod["spec"].get("nodeName") or _meant(pod), []).append(pod)
    return found


def _meant(pod: Json) -> str:
    """The node that a pod waits for."""
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED, {})
    for term in required.get("nodeSelectorTerms", ()):
        for line in term.get("matchFields", ()):
            return str(line["values"][0])
    return ""


def takes(node: Json, daemon_set: Json, effects: tuple[str, ...]) -> bool:
    """Whether a node may run a pod of a DaemonSet, as far as taints of these effects say."""
    spec, labels = _spec(daemon_set), node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(_REQUIRED)
    if required is not None and not any(_holds(term, node) for term in required["nodeSelectorTerms"]):
        return False
    taints = [each for each in node["spec"].get("taints", ()) if each["effect"] in effects]
    return all(any(_tolerates(each, taint) for each in spec["tolerations"]) for taint in taints)


def _holds(term: Json, node: Json) -> bool:
    labels, fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    if not labels and not fields:
        return False  # an empty term selects nothing
    return selectors.selects({"matchExpressions": labels}, node["metadata"].get("labels", {})) and selectors.selects(
        {"matchExpressions": fields}, {"metadata.name": node["metadata"]["name"]}
    )


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return bool(toleration.get("key", taint["key"]) == taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))


def _spec(daemon_set: Json) -> Json:
    """What its pods are, less the node."""
    spec = daemon_set["spec"]["template"]["spec"]
    added = [*_TOLERATED, *([("network-unavailable", "NoSchedule")] if spec.get("hostNetwork") else [])]
    tolerations = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect} for name, effect in added
    ]
    return {**spec, "tolerations": [*spec.get("tolerations", ()), *tolerations]}


def _pod(daemon_set: Json, node: str) -> Json:
    spec, meta = _spec(daemon_set), daemon_set["spec"]["template"]["metadata"]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.get("affinity", {})
    there = {**affinity.get("nodeAffinity", {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    generation = daemon_set["metadata"]["annotations"][TEMPLATE_GENERATION]
    labels = {**meta.get("labels", {}), _HASH: _hash(daemon_set), "pod-template-generation": generation}
    named = {**meta, "generateName": f"{daemon_set['metadata']['name']}-", "labels": labels}
    return {"metadata": named, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": there}}}


def _hash(daemon_set: Json) -> str:
    return fingerprint(daemon_set["spec"]["template"])


def _replace(owners: Owners, daemon_set: Json, nodes: int) -> None:
    """Delete pods of an older template: those that do no work at once, the others as long as enough are left."""
    strategy = daemon_set["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return
    most = strategy["rollingUpdate"]["maxUnavailable"]
    most = math.ceil(int(most[:-1]) * nodes / 100) if isinstance(most, str) else most
    pods = [pod for pod in owners.owned(daemon_set) if not has_ended(pod)]
    idle = [pod for pod in pods if is_going(pod) or wait_for(pod, daemon_set, owners.now)]
    old = [pod for pod in pods if not is_going(pod) and pod["metadata"]["labels"].get(_HASH) != _hash(daemon_set)]
    useless = [pod for pod in old if pod in idle]
    useful = [pod for pod in old if pod not in idle]
    for pod in [*useless, *useful[: max(0, most - len(idle))]]:
        owners.delete(daemon_set, pod)


def _report(owners: Owners, daemon_set: Json) -> float | None:
    here, wanted, waits = _by_node(owners, daemon_set), 0, []
    counts = dict.fromkeys(("currentNumberScheduled", "numberReady", "numberAvailable", "updatedNumberScheduled"), 0)
    misplaced = 0
    for node in owners.store.list(NODE):
        pods = [pod for pod in here.get(node["metadata"]["name"], ()) if not has_ended(pod) and not is_going(pod)]
        if not takes(node, daemon_set, ("NoSchedule", "NoExecute")):
            misplaced += bool(pods)
            continue
        wanted += 1
        for pod in pods[:1]:
            wait = wait_for(pod, daemon_set, owners.now)
            waits.append(wait or None)
            counts["currentNumberScheduled"] += 1
            counts["numberReady"] += is_ready(pod)
            counts["numberAvailable"] += not wait
            counts["updatedNumberScheduled"] += pod["metadata"]["labels"].get(_HASH) == _hash(daemon_set)
    status = {
        **counts,
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": misplaced,
        "numberUnavailable": wanted - counts["numberAvailable"],
        "observedGeneration": daemon_set["metadata"]["generation"],
        **{key: daemon_set["status"][key] for key in ("conditions", "collisionCount") if key in daemon_set["status"]},
    }
    owners.report(DAEMON_SET, daemon_set, status)
    return soonest(*waits)
