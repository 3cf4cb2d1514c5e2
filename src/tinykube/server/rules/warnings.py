"""What an API server says about an object that it accepts, but that may not do what its author thinks."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from tinykube.server import kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules import scalars
from tinykube.server.rules.problem import quote
from tinykube.server.rules.validation import names
from tinykube.server.rules.validation.pod import every_container
from tinykube.server.rules.validation.service import headless

Json = dict[str, Any]

_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": "priorityClassName",
    "seccomp.security.alpha.kubernetes.io/pod": "seccompProfile",
}
_SINCE = {"priorityClassName": "v1.16+", "seccompProfile": "v1.27+"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NO_MATCH = "a null labelSelector results in matching no pod"
_WHOLE = 10**9
_KNOWN_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


def warnings(kind: Kind, object: Json, *, new: bool = True) -> list[str]:
    """What there is to say about an object that was stored, as a new one or in place of another."""
    if kind.custom:
        return list(_finalizers(object))
    if not new and kind in (kinds.POD, kinds.RESOURCE_QUOTA, *kinds.WORKLOADS):
        return []
    about = _OF.get(kind)
    return list(about(object)) if about is not None else []


def _pod(pod: Json) -> Iterator[str]:
    meta, spec = pod["metadata"], pod["spec"]
    wrong = names.dns_label(meta["name"])
    if wrong:
        words = (
            "this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended"
        )
        yield f"metadata.name: {words}: [{' '.join(wrong)}]"
    for key in spec.get("nodeSelector", ()):
        if key in _OLD_LABELS:
            yield f"spec.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    if "affinity" in spec:
        yield from _node_affinity(spec["affinity"].get("nodeAffinity", {}))
    yield from _spread(spec.get("topologySpreadConstraints", ()))
    for key, field in _OLD_ANNOTATIONS.items():
        if key in meta.get("annotations", {}) and field not in spec.get("securityContext", {}):
            yield f'metadata.annotations[{key}]: non-functional in {_SINCE[field]}; use the "{field}" field instead'
    yield from _twice("spec.hostAliases", "ip", spec.get("hostAliases", ()))
    secrets = spec.get("imagePullSecrets", ())
    yield from _twice("spec.imagePullSecrets", "name", secrets)
    for index, secret in enumerate(secrets):
        if not secret.get("name"):
            yield f'spec.imagePullSecrets[{index}].name: invalid empty name ""'
    for path, container in every_container(spec):
        yield from _amounts(path, container["resources"])
        yield from _variables(f"{path}.env", container.get("env", ()))
    yield from _ports(spec)
    if "affinity" in spec:
        yield from _pod_affinity(spec["affinity"])


def _workload(object: Json) -> Iterator[str]:
    """What there is to say about a template is said about its place."""
    wrong = names.dns_label(object["metadata"]["name"])
    if wrong and object["kind"] != "DaemonSet":
        words = "this is used in Pod names and hostnames, which can result in surprising behavior"
        yield f"metadata.name: {words}; a DNS label is recommended: [{' '.join(wrong)}]"
    template = object["spec"]["template"]
    for words in _pod({"metadata": {**template["metadata"], "name": "template"}, "spec": template["spec"]}):
        yield f"spec.template.{words}"


def _node_affinity(affinity: Json) -> Iterator[str]:
    path = "spec.affinity.nodeAffinity"
    terms = [
        (f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", term, False)
        for index, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
    ]
    terms += [
        (f"{path}.{_PREFERRED}[{index}].preference", each.get("preference", {}), True)
        for index, each in enumerate(affinity.get(_PREFERRED, ()))
    ]
    for here, term, check_values in terms:
        for index, line in enumerate(term.get("matchExpressions", ())):
            key = line.get("key", "")
            if key in _OLD_LABELS:
                yield f"{here}.matchExpressions[{index}].key: {key} is {_OLD_LABELS[key]}"
            for place, value in enumerate(line.get("values", ()) if check_values else ()):
                for wrong in names.label_value(value):
                    yield f"{here}.matchExpressions[{index}].values[{place}]: {value} is invalid, {wrong}"


def _spread(constraints: list[Json]) -> Iterator[str]:
    for index, constraint in enumerate(constraints):
        path, key = f"spec.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _OLD_LABELS:
            yield f"{path}.topologyKey: {key} is {_OLD_LABELS[key]}"
        if "labelSelector" not in constraint:
            yield f"{path}.labelSelector: {_NO_MATCH}"


def _pod_affinity(affinity: Json) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind, {})
        for index, term in enumerate(terms.get(_REQUIRED, ())):
            if "labelSelector" not in term:
                yield f"spec.affinity.{kind}.{_REQUIRED}[{index}].labelSelector: {_NO_MATCH}"
        for index, weighted in enumerate(terms.get(_PREFERRED, ())):
            if "labelSelector" not in weighted.get("podAffinityTerm", {}):
                yield f"spec.affinity.{kind}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_MATCH}"


def _twice(path: str, key: str, items: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(key, "")
        if value in seen:
            yield f"{path}[{index}].{key}: duplicate {key} {quote(value)}"
        seen.add(value)


def _amounts(path: str, resources: Json) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for which in ("limits", "requests"):
            text = resources.get(which, {}).get(name)
            if text is not None and scalars.nanos(text) % _WHOLE:
                words = f"fractional byte value {quote(text)} is invalid, must be an integer"
                yield f"{path}.resources.{which}[{name}]: {words}"


def _variables(path: str, variables: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable["name"], variable.get("value", "")
        if name in seen and ("valueFrom" in variable or value == f"$({name})" or f"$({name})" not in value):
            words = f"hides previous definition of {quote(name)}, which may be dropped when using apply"
            yield f"{path}[{index}]: {words}"
        seen.add(name)


def _ports(spec: Json) -> Iterator[str]:
    seen: dict[tuple[int, str], list[tuple[str, Json]]] = {}
    given = [
        (f"{path}.ports[{index}]", port)
        for path, container in every_container(spec)
        for index, port in enumerate(container.get("ports", ()))
    ]
    for path, port in given:
        if port.get("hostIP") and not port.get("hostPort"):
            told = (
                f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port['containerPort']} "
                f"Protocol:{port['protocol']} HostIP:{port['hostIP']}}}"
            )
            yield f"{path}: hostIP set without hostPort: {told}"
        others = seen.setdefault((port["containerPort"], port["protocol"]), [])
        for other, before in others:
            how = _clash(port, before)
            if how:
                yield f"{path}: {how} port definition with {other}"
        others.append((path, port))
    by_name: dict[str, str] = {}
    for path, port in given:
        name = port.get("name")
        if name in by_name:
            other = by_name[name]
            words = f"services and probes that select ports by name will use {other}"
            yield f"{path}: duplicate port name {quote(name)} with {other}, {words}"
        elif name:
            by_name[name] = path


def _clash(port: Json, other: Json) -> str:
    address, before = port.get("hostIP", ""), other.get("hostIP", "")
    number, taken = port.get("hostPort", 0), other.get("hostPort", 0)
    if (address, number) == (before, taken):
        return "duplicate"
    if not number or not taken:
        return "overlapping"
    return "dangerously ambiguous" if number == taken and bool(address) != bool(before) else ""


def _service(service: Json) -> Iterator[str]:
    spec = service["spec"]
    external, named = spec.get("externalIPs", ()), spec.get("type") == "ExternalName"
    alone = headless(spec) and spec.get("type") == "ClusterIP"
    if alone:
        for key in ("loadBalancerIP", "externalIPs"):
            if spec.get(key):
                yield f"spec.{key} is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if external and not alone and not named:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if external and named:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("externalName") and not named:
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _secret(secret: Json) -> Iterator[str]:
    if secret.get("type") == "kubernetes.io/tls":
        data = secret.get("data", {})
        for key, what in (("tls.crt", "certificate"), ("tls.key", "key")):
            if b"-----BEGIN " not in base64.b64decode(data.get(key, "")):
                yield f"tls: failed to find any PEM data in {what} input"
                return


def _quota(quota: Json) -> Iterator[str]:
    hard = quota["spec"].get("hard", {})
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        requests = f"requests.{name}" if f"requests.{name}" in hard or name not in ("cpu", "memory") else name
        limits = f"limits.{name}"
        if requests in hard and limits in hard and scalars.nanos(hard[requests]) > scalars.nanos(hard[limits]):
            yield f"ResourceQuota {requests} ({hard[requests]}) should be less than {limits} ({hard[limits]})"


def _node(node: Json) -> Iterator[str]:
    if node["spec"].get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


def _finalizers(object: Json) -> Iterator[str]:
    for name in object["metadata"].get("finalizers", ()):
        if "/" not in name and name not in _KNOWN_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            words = f"prefer a domain-qualified finalizer name{path} to avoid accidental conflicts"
            yield f"metadata.finalizers: {quote(name)}: {words} with other finalizer writers"


_OF: dict[Kind, Callable[[Json], Iterator[str]]] = {
    kinds.POD: _pod,
    kinds.SERVICE: _service,
    kinds.SECRET: _secret,
    kinds.RESOURCE_QUOTA: _quota,
    kinds.NODE: _node,
    **dict.fromkeys(kinds.WORKLOADS, _workload),
}
