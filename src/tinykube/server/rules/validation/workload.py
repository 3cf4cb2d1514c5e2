"""What a Deployment, a ReplicaSet or a DaemonSet must be, and what of it may change.

What the controllers do not do is refused too, instead of being ignored: `daemon_set` says which that is.
"""

from __future__ import annotations

from typing import Any

from tinykube.server import digits, selectors
from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, pod

Json = dict[str, Any]

_COUNTS = {
    "Deployment": ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"),
    "ReplicaSet": ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    "DaemonSet": (
        "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
        "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    ),
}  # fmt: skip


def deployment(problems: Problems, object: Json) -> None:
    """Of a new Deployment."""
    metadata.creation(problems, object["metadata"], True, names.subdomain_name)
    _deployment(problems, object["spec"])


def deployment_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a Deployment that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _deployment(problems, new["spec"])
    _same_selector(problems, new, old)


def replica_set(problems: Problems, object: Json) -> None:
    """Of a new ReplicaSet."""
    metadata.creation(problems, object["metadata"], True, names.subdomain_name)
    _replica_set(problems, object["spec"])


def replica_set_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a ReplicaSet that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _replica_set(problems, new["spec"])
    _same_selector(problems, new, old)


def daemon_set(problems: Problems, object: Json) -> None:
    """Of a new DaemonSet."""
    metadata.creation(problems, object["metadata"], True, names.subdomain_name)
    _daemon_set(problems, object["spec"])


def daemon_set_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a DaemonSet that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _same_selector(problems, new, old)
    _daemon_set(problems, new["spec"])


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of any of them whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    given = new["status"]
    for name in ("observedGeneration", *_COUNTS[new["kind"]], "terminatingReplicas", "collisionCount"):
        not_negative(problems, f"status.{name}", given.get(name, 0))
    if "replicas" not in _COUNTS[new["kind"]]:
        return
    for name in ("fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "availableReplicas"):
        if given.get(name, 0) > given.get("replicas", 0):
            words = "cannot be greater than status.replicas"
            problems.append(problem.invalid(f"status.{name}", given[name], words))
    if given.get("availableReplicas", 0) > given.get("readyReplicas", 0):
        words = "cannot be greater than readyReplicas"
        problems.append(problem.invalid("status.availableReplicas", given["availableReplicas"], words))


def not_negative(problems: Problems, path: str, value: int) -> None:
    """Of a number that counts something."""
    if value < 0:
        problems.append(problem.invalid(path, value, "must be greater than or equal to 0"))


def matches(problems: Problems, spec: Json) -> None:
    """Whether the pods that a workload makes are those that it looks for."""
    labels = spec["template"]["metadata"].get("labels", {})
    if not selectors.selects(spec.get("selector"), labels):
        words = "`selector` does not match template `labels`"
        problems.append(problem.invalid("spec.template.metadata.labels", dict(sorted(labels.items())) or None, words))


def _deployment(problems: Problems, spec: Json) -> None:
    not_negative(problems, "spec.replicas", spec["replicas"])
    _selected(problems, spec)
    _strategy(problems, spec["strategy"])
    not_negative(problems, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    not_negative(problems, "spec.revisionHistoryLimit", spec["revisionHistoryLimit"])
    deadline = spec["progressDeadlineSeconds"]
    not_negative(problems, "spec.progressDeadlineSeconds", deadline)
    if deadline <= spec.get("minReadySeconds", 0):
        words = "must be greater than minReadySeconds"
        problems.append(problem.invalid("spec.progressDeadlineSeconds", deadline, words))


def _replica_set(problems: Problems, spec: Json) -> None:
    not_negative(problems, "spec.replicas", spec["replicas"])
    not_negative(problems, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    _selected(problems, spec)


def _daemon_set(problems: Problems, spec: Json) -> None:
    wrong: Problems = []
    metadata.label_selector(wrong, "spec.selector", spec.get("selector"))
    problems += wrong
    if not wrong:
        matches(problems, spec)
    if "selector" in spec and not selectors.of(spec["selector"]):
        problems.append(problem.invalid("spec.selector", {}, "empty selector is invalid for daemonset"))
    _lasting(problems, spec, "DaemonSet")
    not_negative(problems, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    strategy, path = spec["updateStrategy"], "spec.updateStrategy"
    if strategy["type"] == "RollingUpdate":
        limits, path = strategy["rollingUpdate"], f"{path}.rollingUpdate"
        for name in ("maxUnavailable", "maxSurge"):
            _share(problems, f"{path}.{name}", limits[name])
        for name in ("maxUnavailable", "maxSurge"):
            _at_most_all(problems, f"{path}.{name}", limits[name])
        surge = _number(limits["maxSurge"])
        if _number(limits["maxUnavailable"]) and surge:
            words = "may not be set when maxUnavailable is non-zero"
            problems.append(problem.invalid(f"{path}.maxSurge", limits["maxSurge"], words))
        elif not _number(limits["maxUnavailable"]) and not surge:
            problems.append(problem.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif surge:
            words = "is not supported by this server; set maxUnavailable instead, and maxSurge to 0"
            problems.append(problem.forbidden(f"{path}.maxSurge", words))
    elif strategy["type"] != "OnDelete":
        problems.append(problem.unsupported(path, _go(strategy), ("RollingUpdate", "OnDelete")))
    not_negative(problems, "spec.revisionHistoryLimit", spec["revisionHistoryLimit"])


def _selected(problems: Problems, spec: Json) -> None:
    """Of the selector and the template of a Deployment or a ReplicaSet; messages know only the former."""
    wrong: Problems = []
    metadata.label_selector(wrong, "spec.selector", spec.get("selector"))
    problems += wrong
    if "selector" not in spec:
        problems.append(problem.required("spec.selector"))
    elif not selectors.of(spec["selector"]):
        problems.append(problem.invalid("spec.selector", {}, "empty selector is invalid for deployment"))
    if wrong:
        problems.append(problem.invalid("spec.selector", spec["selector"], "invalid label selector"))
        return
    matches(problems, spec)
    _lasting(problems, spec, "ReplicaSet")


def _lasting(problems: Problems, spec: Json, kind: str) -> None:
    """Pods of these kinds are there for good."""
    template = spec["template"]
    pod.template(problems, template)
    policy = template["spec"]["restartPolicy"]
    if policy != "Always":
        problems.append(problem.unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if "activeDeadlineSeconds" in template["spec"]:
        words = f"activeDeadlineSeconds in {kind} is not Supported"
        problems.append(problem.forbidden("spec.template.spec.activeDeadlineSeconds", words))


def _strategy(problems: Problems, strategy: Json) -> None:
    path, limits = "spec.strategy", strategy.get("rollingUpdate", {})
    if strategy["type"] == "Recreate":
        if "rollingUpdate" in strategy:
            words = "may not be specified when strategy `type` is 'Recreate'"
            problems.append(problem.forbidden(f"{path}.rollingUpdate", words))
    elif strategy["type"] == "RollingUpdate":
        unavailable, surge = limits["maxUnavailable"], limits["maxSurge"]
        _share(problems, f"{path}.rollingUpdate.maxUnavailable", unavailable)
        _share(problems, f"{path}.rollingUpdate.maxSurge", surge)
        if not _number(unavailable) and not _number(surge):
            words = "may not be 0 when `maxSurge` is 0"
            problems.append(problem.invalid(f"{path}.rollingUpdate.maxUnavailable", unavailable, words))
        _at_most_all(problems, f"{path}.rollingUpdate.maxUnavailable", unavailable)
    else:
        problems.append(problem.unsupported(path, _go(strategy), ("Recreate", "RollingUpdate")))


def _go(strategy: Json) -> Json:
    """As a server prints it, which has other names inside."""
    return {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}


def _share(problems: Problems, path: str, value: int | str) -> None:
    if isinstance(value, str):
        beyond = () if digits.whole(value[:-1]) is not None else ("must be a number of at most 20 digits",)
        problem.each(problems, path, value, names.percent(value) or beyond)
    else:
        not_negative(problems, path, value)


def _at_most_all(problems: Problems, path: str, value: int | str) -> None:
    if isinstance(value, str) and _number(value) > 100:
        problems.append(problem.invalid(path, value, "must not be greater than 100%"))


def _number(value: int | str) -> int:
    if isinstance(value, int):
        return value
    return 0 if names.percent(value) else digits.whole(value[:-1]) or 0


def _same_selector(problems: Problems, new: Json, old: Json) -> None:
    problem.immutable(problems, "spec.selector", new["spec"].get("selector"), old["spec"].get("selector"))
