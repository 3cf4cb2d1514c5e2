"""What amounts of what resources may be asked for.

A name without a domain must be one that Kubernetes knows.  A name with a domain is an extended resource, as
cards are: whole numbers only, and no more limit than request, since it cannot be overcommitted.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.memo import remembered
from tinykube.server.rules import problem, scalars
from tinykube.server.rules.amounts import is_pod_level
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names

Json = dict[str, Any]

_WHOLE = 10**9

_CONTAINER = frozenset(("cpu", "memory", "ephemeral-storage"))
_COUNTED = frozenset((
    "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
    "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
))  # fmt: skip
_QUOTA = _CONTAINER | _COUNTED | {
    "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
    "limits.cpu", "limits.memory", "limits.ephemeral-storage",
}  # fmt: skip
_STANDARD = _QUOTA | {"storage"}


def is_native(name: str) -> bool:
    """Whether a resource is Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


@remembered(4096)
def is_extended(name: str) -> bool:
    """Whether it is an extended resource, as `example.com/card`."""
    return not is_native(name) and not name.startswith("requests.") and not names.label_key(f"requests.{name}")


def is_huge_page(name: str) -> bool:
    """Whether a resource is memory in huge pages."""
    return name.startswith("hugepages-")


def can_be_overcommitted(name: str) -> bool:
    """Whether a limit may be larger than the request."""
    return is_native(name) and not is_huge_page(name)


@remembered(4096)
def is_quota_standard(name: str) -> bool:
    """Whether a quota knows a name without a domain."""
    return name in _QUOTA or is_huge_page(name) or name.startswith("requests.hugepages-")


@remembered(4096)
def _name(name: str) -> names.Wrong:
    wrong = names.label_key(name)
    if wrong:
        return wrong
    standard = name in _STANDARD or is_huge_page(name) or name.startswith("requests.hugepages-")
    return () if "/" in name or standard else ("must be a standard resource type or fully qualified",)


@remembered(4096)
def container_name(name: str) -> names.Wrong:
    """A resource of a container."""
    wrong = _name(name)
    if "/" not in name:
        known = name in _CONTAINER or is_huge_page(name)
        return wrong if known else (*wrong, "must be a standard resource for containers")
    strange = not is_native(name) and not is_extended(name)
    return (*wrong, "doesn't follow extended resource name standard") if strange else wrong


@remembered(4096)
def quota_name(name: str) -> names.Wrong:
    """A resource of a quota."""
    strange = "/" not in name and not is_quota_standard(name)
    return (*_name(name), "must be a standard resource for quota") if strange else _name(name)


def amount(problems: Problems, path: str, name: str, text: str) -> None:
    """Of one amount."""
    nanos = scalars.nanos(text)
    if nanos < 0:
        problems.append(problem.invalid(path, text, "must be greater than or equal to 0"))
    if nanos % _WHOLE and (name in _COUNTED or is_extended(name)):
        problems.append(problem.invalid(path, text, "must be an integer"))


def requirements(problems: Problems, path: str, given: Json, claims: set[str], *, of_pod: bool = False) -> None:
    """Of `resources` of a container, or of a pod as a whole."""
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    for name, text in limits.items():
        _one(problems, f"{path}.limits", name, text, of_pod)
    for name, text in requests.items():
        _one(problems, f"{path}.requests", name, text, of_pod)
        _against_limit(problems, path, name, text, limits.get(name))
    asked = limits.keys() | requests.keys()
    if any(is_huge_page(name) for name in asked) and not asked & {"cpu", "memory"}:
        problems.append(problem.forbidden(path, "HugePages require cpu or memory"))
    if "claims" in given:
        _claims(problems, f"{path}.claims", given["claims"], claims)


def _one(problems: Problems, path: str, name: str, text: str, of_pod: bool) -> None:
    wrong = _name(name) if of_pod else container_name(name)
    if wrong:
        problem.each(problems, f"{path}[{name}]", name, wrong)
    elif of_pod and not is_pod_level(name):
        problems.append(problem.unsupported(f"{path}[{name}]", name, ("cpu", "hugepages-", "memory")))
    if text[0] == "-" or "/" in name or name in _COUNTED:
        amount(problems, f"{path}[{name}]", name, text)
    if is_huge_page(name):
        _huge(problems, f"{path}[{name}]", name, text)


def _against_limit(problems: Problems, path: str, name: str, text: str, limit: str | None) -> None:
    if limit is None:
        if not can_be_overcommitted(name):
            words = "Limit must be set for non overcommitable resources"
            problems.append(problem.required(f"{path}.limits", words))
    elif text != limit:
        over = scalars.nanos(text) - scalars.nanos(limit)
        if over and not can_be_overcommitted(name):
            problems.append(problem.invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}"))
        elif over > 0:
            words = f"must be less than or equal to {name} limit of {limit}"
            problems.append(problem.invalid(f"{path}.requests", text, words))


def _huge(problems: Problems, path: str, name: str, text: str) -> None:
    try:
        page = scalars.nanos(scalars.quantity(name.removeprefix("hugepages-")))
    except scalars.BadValue:
        page = 0
    if page <= 0 or page % _WHOLE or -(-scalars.nanos(text) // _WHOLE) % (page // _WHOLE):
        problems.append(problem.invalid(path, text, f"{text} is not positive integer multiple of {name}"))


def _claims(problems: Problems, path: str, claims: list[Json], known: set[str]) -> None:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name, request = f"{path}[{index}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            problems.append(problem.required(here))
            continue
        if name in seen:
            problems.append(problem.duplicate(here, name))
        else:
            key = f"{name}/{request}" if request else name
            if request:
                problem.each(problems, f"{here}.request", request, names.dns_label(request))
            if key in seen:
                problems.append(problem.duplicate(here, key))
            elif not request:
                problems += [problem.duplicate(here, name) for each in seen if each.startswith(f"{name}/")]
            seen.add(key)
        if name not in known:
            words = ": " + ", ".join(sorted(known)) if known else " which is empty"
            problems.append(
                problem.not_found(here, name, "must be one of the names in pod.spec.resourceClaims" + words)
            )
