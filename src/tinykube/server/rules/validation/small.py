"""What the kinds must be that have few rules: namespaces, service accounts, leases, priority classes, bindings."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names

Json = dict[str, Any]

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2 * _HIGHEST + 1000, "system-cluster-critical": 2 * _HIGHEST}


def namespace(problems: Problems, given: Json) -> None:
    """Of a namespace."""
    metadata.creation(problems, given["metadata"], False, names.label_name)
    for name in given["spec"].get("finalizers", ()):
        metadata.finalizer(problems, "spec.finalizers", name)


def namespace_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a namespace that is written again."""
    namespace(problems, new)
    metadata.update(problems, new["metadata"], old["metadata"])


def namespace_status(problems: Problems, new: Json, old: Json) -> None:
    """Of a namespace whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    phase, dying = new["status"].get("phase", ""), "deletionTimestamp" in new["metadata"]
    right, which = ("Terminating", "not empty") if dying else ("Active", "empty")
    if phase != right:
        words = f"may only be '{right}' if `deletionTimestamp` is {which}"
        problems.append(problem.invalid("status.Phase", phase, words))


def namespace_finalize(problems: Problems, new: Json, old: Json) -> None:
    """Of a namespace whose finalizers are written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    for index, name in enumerate(new["spec"].get("finalizers", ())):
        metadata.finalizer(problems, f"spec.finalizers[{index}]", name)


def service_account(problems: Problems, given: Json) -> None:
    """Of a service account."""
    metadata.creation(problems, given["metadata"], True, names.subdomain_name)


def service_account_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a service account that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    service_account(problems, new)


def lease(problems: Problems, given: Json) -> None:
    """Of a lease."""
    metadata.creation(problems, given["metadata"], True, names.subdomain_name, core=False)
    _lease_spec(problems, given["spec"])


def lease_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a lease that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"], core=False)
    _lease_spec(problems, new["spec"])


def priority_class(problems: Problems, given: Json) -> None:
    """Of a priority class."""
    meta, value = given["metadata"], given.get("value", 0)
    metadata.creation(problems, meta, False, names.subdomain_name)
    name = meta.get("name", "")
    if name.startswith("system-"):
        why = _system(name, value, given.get("globalDefault", False))
        if why:
            words = f"priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            problems.append(problem.forbidden("metadata.name", words))
    elif value > _HIGHEST:
        words = f"maximum allowed value of a user defined priority is {_HIGHEST}"
        problems.append(problem.forbidden("value", words))
    policy, known = given.get("preemptionPolicy"), ("PreemptLowerPriority", "Never")
    if policy not in known:
        wrong = (
            problem.unsupported("preemptionPolicy", policy, known) if policy else problem.required("preemptionPolicy")
        )
        problems.append(wrong)


def priority_class_update(problems: Problems, new: Json, old: Json) -> None:
    """Of a priority class that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    if new.get("value", 0) != old.get("value", 0):
        problems.append(problem.forbidden("value", "may not be changed in an update."))
    problem.immutable(problems, "preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def binding(problems: Problems, given: Json) -> None:
    """Of a binding: a pod goes to a node."""
    target = given.get("target", {})
    if target.get("kind") not in (None, "", "Node"):
        problems.append(problem.unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        problems.append(problem.required("target.name"))


def _lease_spec(problems: Problems, spec: Json) -> None:
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        problems.append(problem.invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        words = "must be greater than or equal to 0"
        problems.append(problem.invalid("spec.leaseTransitions", transitions, words))


def _system(name: str, value: int, is_default: bool) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if value != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""
