"""A ReplicaSet has as many pods as it says: missing ones are made, those too many deleted, ended ones replaced."""

from __future__ import annotations

from typing import Any

from tinykube.server.controllers.owners import (
    BURST,
    Owners,
    condition,
    is_active,
    is_going,
    is_ready,
    pause_after,
    ready_since,
    soonest,
    wait_for,
)
from tinykube.server.kinds import REPLICA_SET
from tinykube.server.registry import seconds
from tinykube.status import ApiError

Json = dict[str, Any]

RETRY_SECONDS = 5.0
"""After a pod was refused: a quota may have room again."""

_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def sync(owners: Owners, replica_set: Json) -> float | None:
    """Make things as a ReplicaSet wants them; gives the seconds after which to look again."""
    again, refused = None, ""
    if not is_going(replica_set):
        try:
            again = _balance(owners, replica_set)
        except ApiError as error:
            again, refused = RETRY_SECONDS, error.message
    return soonest(again, _report(owners, replica_set, refused))


def _balance(owners: Owners, replica_set: Json) -> float | None:
    pods = owners.owned(replica_set)
    active = [pod for pod in pods if is_active(pod)]
    missing = replica_set["spec"]["replicas"] - len(active)
    if missing > 0:
        # Two that failed may be chance; more are likely to fail again at once.
        failed = [pod for pod in pods if pod["status"].get("phase") == "Failed"][2:]
        pause = pause_after(failed, owners.now)
        if pause:
            return pause
        meta, template = replica_set["metadata"], replica_set["spec"]["template"]
        for _ in range(min(missing, BURST)):
            named = {**template["metadata"], "generateName": f"{meta['name']}-"}
            owners.make(replica_set, {"metadata": named, "spec": template["spec"]})
    for pod in _dispensable(active)[: min(max(-missing, 0), BURST)]:
        owners.delete(replica_set, pod)
    return 0.0 if abs(missing) > BURST else None


def _dispensable(pods: list[Json]) -> list[Json]:
    """Pods in the order in which they may go: those that do no work yet, and the youngest, come first."""
    crowd: dict[str, int] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        crowd[node] = crowd.get(node, 0) + 1

    def rank(pod: Json) -> tuple[Any, ...]:
        node, status = pod["spec"].get("nodeName", ""), pod["status"]
        restarts = sum(each.get("restartCount", 0) for each in status.get("containerStatuses", ()))
        return (
            bool(node),
            _PHASES.get(status.get("phase", ""), 0),
            is_ready(pod),
            int(pod["metadata"].get("annotations", {}).get(_COST, 0)),
            -crowd[node],
            -(ready_since(pod) or 0),
            -restarts,
            -seconds(pod["metadata"]["creationTimestamp"]),
            pod["metadata"]["name"],
        )

    return sorted(pods, key=rank)


def _report(owners: Owners, replica_set: Json, refused: str) -> float | None:
    pods = owners.owned(replica_set)
    active = [pod for pod in pods if is_active(pod)]
    waits = [wait_for(pod, replica_set, owners.now) for pod in active]
    labels = replica_set["spec"]["template"]["metadata"].get("labels", {}).items()
    before = replica_set["status"].get("conditions", [])
    conditions = [each for each in before if each["type"] != "ReplicaFailure"]
    if refused:
        conditions = condition(before, owners.registry.now(), "ReplicaFailure", "True", "FailedCreate", refused)
    status = {
        "replicas": len(active),
        "fullyLabeledReplicas": sum(labels <= pod["metadata"].get("labels", {}).items() for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(not wait for wait in waits),
        "terminatingReplicas": sum(is_going(pod) for pod in pods),
        "observedGeneration": replica_set["metadata"]["generation"],
        "conditions": conditions,
    }
    owners.report(REPLICA_SET, replica_set, status)
    return soonest(*(wait for wait in waits if wait))
