"""What a Deployment, a ReplicaSet, a DaemonSet or a Job is where its author says nothing."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules.defaults import pod

Json = dict[str, Any]

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""The annotation by which a DaemonSet counts the changes of its template."""

_MAX_INT32 = 2**31 - 1


def deployment(object: Json) -> None:
    """Pods are replaced a quarter at a time."""
    spec = object["spec"]
    _replicated(spec)
    _rolling(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def replica_set(object: Json) -> None:
    """One pod."""
    _replicated(object["spec"])


def daemon_set(object: Json) -> None:
    """Pods are replaced one after the other."""
    spec = object["spec"]
    object["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "1")
    _template(spec)
    _rolling(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    spec.setdefault("revisionHistoryLimit", 10)


def job(object: Json) -> None:
    """One pod that ends well, at the seventh attempt at the latest.  Its own labels are those of its pods."""
    spec = object["spec"]
    _template(spec)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    for rule in spec.get("podFailurePolicy", {}).get("rules") or ():
        for pattern in rule.get("onPodConditions", ()):
            pattern.setdefault("status", "True")
    labels(object)


def labels(job: Json) -> None:
    """A job without labels has those of its pods: the very same map, which then gets what is added for the pods."""
    given = job["spec"]["template"]["metadata"].get("labels")
    if given and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = given


def _replicated(spec: Json) -> None:
    _template(spec)
    spec.setdefault("replicas", 1)


def _template(spec: Json) -> None:
    pod.template(spec["template"]["spec"])


def _rolling(strategy: Json, **limits: int | str) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**limits, **strategy.get("rollingUpdate", {})}
