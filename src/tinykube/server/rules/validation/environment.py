"""Where environment variables may come from."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem, scalars
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names, paths

Json = dict[str, Any]

_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_LABELS = (
    *_FIELDS, "metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase",
)  # fmt: skip
_RESOURCES = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE = ("requests.hugepages-", "limits.hugepages-")
_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def variables(problems: Problems, path: str, given: list[Json]) -> None:
    """Of `env`."""
    for index, variable in enumerate(given):
        name = variable.get("name", "")
        if not name:
            problems.append(problem.required(f"{path}[{index}].name"))
        else:
            wrong = names.variable(name)
            if wrong:
                problem.each(problems, f"{path}[{index}].name", name, wrong)
        if "valueFrom" in variable:
            _value_from(problems, f"{path}[{index}].valueFrom", variable)


def sources(problems: Problems, path: str, given: list[Json]) -> None:
    """Of `envFrom`."""
    for index, source in enumerate(given):
        here = f"{path}[{index}]"
        if "prefix" in source:
            problem.each(problems, f"{here}.prefix", source["prefix"], names.variable(source["prefix"]))
        count = 0
        for kind in ("configMapRef", "secretRef"):
            if kind in source:
                count += 1
                name = source[kind].get("name", "")
                if not name:
                    problems.append(problem.required(f"{here}.{kind}.name"))
                else:
                    problem.each(problems, f"{here}.{kind}.name", name, names.subdomain_name(name, True))
        if count == 0:
            problems.append(problem.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            problems.append(problem.invalid(path, "", "may not have more than one field specified at a time"))


def field(problems: Problems, path: str, reference: Json, allowed: tuple[str, ...]) -> None:
    """Of a reference to one of the pod's own fields."""
    for key in ("apiVersion", "fieldPath"):
        if not reference.get(key):
            problems.append(problem.required(f"{path}.{key}"))
            return
    text = reference["fieldPath"]
    name, _, subscript = text.removesuffix("']").partition("['")
    subscripted = text.endswith("']") and "['" in text and bool(name)
    why = ""
    if reference["apiVersion"] != "v1":
        why = f"unsupported pod version: {reference['apiVersion']}"
    elif subscripted and name not in ("metadata.annotations", "metadata.labels"):
        why = f"field label does not support subscript: {text}"
    elif not subscripted and text not in (*_LABELS, "spec.host"):
        why = f"field label not supported: {text}"
    if why:
        problems.append(problem.invalid(f"{path}.fieldPath", text, f"error converting fieldPath: {why}"))
    elif subscripted:
        key = subscript.lower() if name == "metadata.annotations" else subscript
        problem.each(problems, path, key, names.label_key(key))
    else:
        text = "spec.nodeName" if text == "spec.host" else text
        if text not in allowed:
            problems.append(problem.unsupported(f"{path}.fieldPath", text, sorted(allowed)))


def resource(problems: Problems, path: str, reference: Json, *, volume: bool) -> None:
    """Of a reference to a container's amount of a resource."""
    name = reference.get("resource", "")
    if volume and not reference.get("containerName"):
        problems.append(problem.required(f"{path}.containerName"))
    elif not name:
        problems.append(problem.required(f"{path}.resource"))
    elif name not in _RESOURCES and not name.startswith(_HUGE):
        problems.append(problem.unsupported(f"{path}.resource", name, _RESOURCES))
    _divisor(problems, path, name, reference.get("divisor", "0"))


def _divisor(problems: Problems, path: str, name: str, divisor: str) -> None:
    if not scalars.nanos(divisor):
        return
    units: tuple[str, ...] = _UNITS
    kind, which = "", "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
    if name in ("limits.cpu", "requests.cpu"):
        kind, units, which = "cpu", ("1m", "1"), "1m and 1"
    elif name in ("limits.memory", "requests.memory"):
        kind = "memory"
    elif name in ("limits.ephemeral-storage", "requests.ephemeral-storage"):
        kind = "local ephemeral storage"
    elif name.startswith(_HUGE):
        kind = "hugepages"
    if kind and divisor not in units:
        words = f"only divisor's values {which} are supported with the {kind} resource"
        problems.append(problem.invalid(f"{path}.divisor", name, words))


def _value_from(problems: Problems, path: str, variable: Json) -> None:
    source = variable["valueFrom"]
    if "fieldRef" in source:
        field(problems, f"{path}.fieldRef", source["fieldRef"], _FIELDS)
    if "resourceFieldRef" in source:
        resource(problems, f"{path}.resourceFieldRef", source["resourceFieldRef"], volume=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            _key(problems, f"{path}.{kind}", source[kind])
    if "fileKeyRef" in source:
        _file(problems, f"{path}.fileKeyRef", source["fileKeyRef"])
    count = sum(kind in source for kind in _SOURCES)
    if count == 0:
        words = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        problems.append(problem.invalid(path, "", words))
    elif variable.get("value"):
        problems.append(problem.invalid(path, "", "may not be specified when `value` is not empty"))
    elif count > 1:
        problems.append(problem.invalid(path, "", "may not have more than one field specified at a time"))


def _key(problems: Problems, path: str, reference: Json) -> None:
    name, key = reference.get("name", ""), reference.get("key", "")
    problem.each(problems, f"{path}.name", name, names.subdomain_name(name))
    if not key:
        problems.append(problem.required(f"{path}.key"))
    else:
        problem.each(problems, f"{path}.key", key, names.config_key(key))


def _file(problems: Problems, path: str, reference: Json) -> None:
    key, volume, file = (reference.get(each, "") for each in ("key", "volumeName", "path"))
    if not key:
        problems.append(problem.required(f"{path}.key"))
    else:
        problem.each(problems, f"{path}.key", key, names.variable(key))
    if not volume:
        problems.append(problem.required(f"{path}.volumeName"))
    else:
        problem.each(problems, f"{path}.volumeName", volume, names.dns_label(volume))
    if not file:
        problems.append(problem.required(f"{path}.path"))
    else:
        paths.no_way_up(problems, f"{path}.path", file)
