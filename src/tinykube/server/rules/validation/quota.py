"""What a resource quota may limit."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, resources

Json = dict[str, Any]

_COMPUTE = ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_SCOPES = {
    "Terminating": _COMPUTE,
    "NotTerminating": _COMPUTE,
    "NotBestEffort": _COMPUTE,
    "PriorityClass": _COMPUTE,
    "CrossNamespacePodAffinity": _COMPUTE,
    "BestEffort": ("pods",),
    "VolumeAttributesClass": ("persistentvolumeclaims", "requests.storage"),
}
_PAIRS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def creation(problems: Problems, quota: Json) -> None:
    """Of a new quota."""
    metadata.creation(problems, quota["metadata"], True, names.subdomain_name)
    _spec(problems, quota["spec"])
    _status(problems, quota["status"])


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a quota that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _spec(problems, new["spec"])
    scopes = new["spec"].get("scopes", [])
    if set(scopes) != set(old["spec"].get("scopes", ())):
        problems.append(problem.invalid("spec.scopes", scopes or None, problem.IMMUTABLE))


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a quota whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    _status(problems, new["status"])


def _amounts(problems: Problems, path: str, given: dict[str, str]) -> None:
    for name, text in given.items():
        problem.each(problems, f"{path}[{name}]", name, resources.quota_name(name))
        resources.amount(problems, f"{path}[{name}]", name, text)


def _status(problems: Problems, given: Json) -> None:
    for which in ("hard", "used"):
        _amounts(problems, f"status.{which}", given.get(which, {}))


def _spec(problems: Problems, spec: Json) -> None:
    hard, scopes = spec.get("hard", {}), spec.get("scopes", [])
    _amounts(problems, "spec.hard", hard)
    for scope in scopes:
        if scope not in _SCOPES:
            problems.append(problem.invalid("spec.scopes", scopes, "unsupported scope"))
        for _ in _unfit(scope, hard):
            problems.append(problem.invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    problems += [problem.invalid("spec.scopes", scopes, "conflicting scopes") for pair in _PAIRS if pair <= set(scopes)]
    if "scopeSelector" in spec:
        _selector(problems, "spec.scopeSelector.matchExpressions", spec, hard)


def _unfit(scope: str, hard: dict[str, str]) -> list[str]:
    fit = _SCOPES.get(scope)
    return [name for name in hard if fit is not None and resources.is_quota_standard(name) and name not in fit]


def _selector(problems: Problems, path: str, spec: Json, hard: dict[str, str]) -> None:
    lines = spec["scopeSelector"].get("matchExpressions", ())
    for line in lines:
        scope, operator, values = line.get("scopeName", ""), line.get("operator", ""), line.get("values", ())
        if scope not in _SCOPES:
            problems.append(problem.invalid(f"{path}.scopeName", scope, "unsupported scope"))
        for _ in _unfit(scope, hard):
            problems.append(problem.invalid(path, spec["scopeSelector"], "unsupported scope applied to resource"))
        if scope in _SCOPES and scope not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            words = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            problems.append(problem.invalid(f"{path}.operator", operator, words))
        if operator in ("In", "NotIn"):
            if not values:
                words = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                problems.append(problem.required(f"{path}.values", words))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                words = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                problems.append(problem.invalid(f"{path}.values", values, words))
        else:
            problems.append(problem.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    scopes = {each.get("scopeName", "") for each in lines}
    for pair in _PAIRS:
        if pair <= scopes:
            problems.append(problem.invalid(path, spec.get("scopes"), "conflicting scopes"))
