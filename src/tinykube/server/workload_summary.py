"""Deployments, ReplicaSets, DaemonSets and Jobs in one line each, as `kubectl get` shows them."""

from __future__ import annotations

from typing import Any

from tinykube.server import selectors

Json = dict[str, Any]

# What a Job's condition says of it; the first that is true counts.
_STATES = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")


def deployment(object: Json) -> list[Any]:
    """Ready, up to date, available."""
    status = object["status"]
    ready = f"{status.get('readyReplicas', 0)}/{object['spec']['replicas']}"
    return [ready, status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]


def replica_set(object: Json) -> list[Any]:
    """Desired, current, ready."""
    status = object["status"]
    return [object["spec"]["replicas"], status.get("replicas", 0), status.get("readyReplicas", 0)]


def daemon_set(object: Json) -> list[Any]:
    """Desired, current, ready, up to date, available, and on which nodes."""
    status = object["status"]
    counts = [
        status.get(name, 0)
        for name in (
            "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled",
            "numberAvailable",
        )
    ]  # fmt: skip
    nodes = object["spec"]["template"]["spec"].get("nodeSelector", {})
    return [*counts, ",".join(f"{key}={value}" for key, value in sorted(nodes.items())) or "<none>"]


def job(object: Json) -> tuple[str, str, tuple[str, str]]:
    """Its state, how much of it is done, and when it began and ended."""
    spec, status = object["spec"], object["status"]
    done, parallel = status.get("succeeded", 0), spec.get("parallelism", 0)
    completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    if "completions" in spec:
        completions = f"{done}/{spec['completions']}"
    true = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    states = [state for state in _STATES if state in true]
    if object["metadata"].get("deletionTimestamp") and not {"Complete", "Failed"} & true:
        states.insert(0, "Terminating")
    return (
        (states or ["Running"])[0],
        completions,
        (status.get("startTime") or "", status.get("completionTime") or ""),
    )


def template(object: Json) -> list[Any]:
    """The names and images of the containers, and by what its pods are known."""
    containers = object["spec"]["template"]["spec"].get("containers") or ()
    names, images = (",".join(each.get(key, "") for each in containers) for key in ("name", "image"))
    return [names, images, selectors.text(object["spec"].get("selector")) or "<none>"]
