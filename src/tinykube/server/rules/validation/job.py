"""What a Job must be, and what of it may change.

What the controller does not do is refused too, instead of being ignored.
"""

from __future__ import annotations

from typing import Any

from tinykube.server import selectors
from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, pod
from tinykube.server.rules.validation.workload import matches, not_negative

Json = dict[str, Any]

CONTROLLER = "kubernetes.io/job-controller"
_NUMBERS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_REPLACED = ("Failed", "TerminatingOrFailed")
_KEPT = ("completions", "selector", "template", "completionMode", "podFailurePolicy", "managedBy", "successPolicy")


def creation(problems: Problems, job: Json) -> None:
    """Of a new Job."""
    metadata.creation(problems, job["metadata"], True, names.subdomain_name)
    _own_labels(problems, job)
    _spec(problems, job["spec"])


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a Job that is written again."""
    creation(problems, new)
    metadata.update(problems, new["metadata"], old["metadata"])
    _spec(problems, new["spec"])
    for name in _KEPT:
        problem.immutable(problems, f"spec.{name}", new["spec"].get(name), old["spec"].get(name))


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a Job whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    for name in ("active", "ready", "terminating", "succeeded", "failed"):
        not_negative(problems, f"status.{name}", new["status"].get(name, 0))
    for name in ("succeeded", "failed"):
        count = new["status"].get(name, 0)
        if count < old["status"].get(name, 0):
            problems.append(problem.invalid(f"status.{name}", count, f"cannot decrease the {name} counter"))


def own_labels(job: Json) -> dict[str, str]:
    """By what a Job knows its pods, unless its author says otherwise."""
    name, uid = job["metadata"].get("name", ""), job["metadata"]["uid"]
    return {
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }


def _own_labels(problems: Problems, job: Json) -> None:
    spec = job["spec"]
    if spec.get("manualSelector") or "selector" not in spec:
        return
    given, wanted = spec["template"]["metadata"].get("labels", {}), own_labels(job)
    for key, value in wanted.items():
        if given.get(key) != value:
            path = f"spec.template.metadata.labels[{key}]"
            words = f"must be '{value}'"
            message = problem.invalid(path, dict(sorted(given.items())), words)
            problems.append(message if key in given else problem.required(path, words))
    selector = spec["selector"]
    if not selectors.selects(selector, wanted):
        told_selector = {**selector, "matchLabels": dict(sorted(selector.get("matchLabels", {}).items()))}
        problems.append(problem.invalid("spec.selector", told_selector, "`selector` not auto-generated"))


def _spec(problems: Problems, spec: Json) -> None:
    for name in _NUMBERS:
        not_negative(problems, f"spec.{name}", spec.get(name, 0))
    mode = spec["completionMode"]
    if mode not in ("NonIndexed", "Indexed"):
        problems.append(problem.unsupported("spec.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode != "Indexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                problems.append(problem.invalid(f"spec.{name}", spec[name], "requires indexed completion mode"))
    if spec["podReplacementPolicy"] not in _REPLACED:
        problems.append(problem.unsupported("spec.podReplacementPolicy", spec["podReplacementPolicy"], _REPLACED))
    _unsupported(problems, spec)
    pod.template(problems, spec["template"])
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        words = 'valid values: "OnFailure", "Never"'
        problems.append(problem.required("spec.template.spec.restartPolicy", words))
    elif policy not in ("OnFailure", "Never"):
        problems.append(problem.unsupported("spec.template.spec.restartPolicy", policy, ("OnFailure", "Never")))
    if "selector" not in spec:
        problems.append(problem.required("spec.selector"))
    metadata.label_selector(problems, "spec.selector", spec.get("selector"))
    matches(problems, spec)


def _unsupported(problems: Problems, spec: Json) -> None:
    """What a real cluster would do, and this one does not."""
    for name, asked, remedy in (
        ("completionMode", spec["completionMode"] == "Indexed", "use NonIndexed"),
        ("suspend", spec.get("suspend"), "create the Job when it may start"),
        ("podFailurePolicy", "podFailurePolicy" in spec, "use backoffLimit"),
        ("successPolicy", "successPolicy" in spec, "use completions"),
        ("managedBy", spec.get("managedBy", CONTROLLER) != CONTROLLER, "leave it out"),
    ):
        if asked:
            problems.append(problem.forbidden(f"spec.{name}", f"is not supported by this server; {remedy}"))
