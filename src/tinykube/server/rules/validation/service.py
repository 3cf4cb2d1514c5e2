"""What a service must be, and what of it may change.

Nothing routes a service here.  So names, ports, type, selector and address are checked; what else there is to say about
balancers, families of addresses and traffic is stored as it is.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, probes

Json = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_DAY = 86400


def creation(problems: Problems, service: Json) -> None:
    """Of a new service."""
    metadata.creation(problems, service["metadata"], True, names.label_name)
    _whole(problems, service)


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a service that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    spec, before = new["spec"], old["spec"]
    given, was = spec.get("clusterIPs", []), before.get("clusterIPs", [])
    if "ExternalName" not in (spec.get("type"), before.get("type")) and given != was:
        problems.append(problem.invalid("spec.clusterIPs[0]", given, "may not change once set"))
    _whole(problems, new)


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a service whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])


def address(problems: Problems, spec: Json) -> None:
    """Of a service's cluster address."""
    path, given, first = "spec.clusterIPs", spec.get("clusterIPs", []), spec.get("clusterIP", "")
    if spec.get("type") == "ExternalName":
        return
    if first and given[:1] != [first]:
        problems.append(problem.invalid(path, given, "first value must match `clusterIP`"))
    elif given and not first:
        problems.append(problem.invalid(path, given, "must be empty when `clusterIP` is not specified"))
    for index, each in enumerate(given):
        if (index, each) != (0, "None"):
            problem.each(problems, f"{path}[{index}]", each, names.ip(each))


def headless(spec: Json) -> bool:
    """Whether a service asks for no address."""
    return bool(spec.get("clusterIPs") == ["None"])


def _whole(problems: Problems, service: Json) -> None:
    spec = service["spec"]
    kind, ports = spec.get("type", ""), spec.get("ports", ())
    if not ports and not headless(spec) and kind != "ExternalName":
        problems.append(problem.required("spec.ports"))
    _by_type(problems, spec, kind)
    seen: set[str] = set()
    for index, port in enumerate(ports):
        _port(problems, f"spec.ports[{index}]", port, len(ports) > 1, seen)
    metadata.labels(problems, "spec.selector", spec.get("selector"))
    _affinity(problems, spec)
    address(problems, spec)
    if kind not in _TYPES:
        problems.append(problem.unsupported("spec.type", kind, _TYPES))
    _unique_ports(problems, ports, kind)


def _by_type(problems: Problems, spec: Json, kind: str) -> None:
    if kind in ("LoadBalancer", "NodePort") and headless(spec):
        problems.append(problem.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        if spec.get("clusterIPs"):
            problems.append(problem.forbidden("spec.clusterIPs", "may not be set for ExternalName services"))
        name = spec.get("externalName", "").removesuffix(".")
        if name:
            problem.each(problems, "spec.externalName", name, names.dns_subdomain(name))
        else:
            problems.append(problem.required("spec.externalName"))


def _port(problems: Problems, path: str, port: Json, named: bool, seen: set[str]) -> None:
    name = port.get("name", "")
    if named and not name:
        problems.append(problem.required(f"{path}.name"))
    elif name:
        problem.each(problems, f"{path}.name", name, names.dns_label(name))
        if name in seen:
            problems.append(problem.duplicate(f"{path}.name", name))
        seen.add(name)
    problem.each(problems, f"{path}.port", port.get("port", 0), names.port_number(port.get("port", 0)))
    if port.get("protocol") not in _PROTOCOLS:
        problems.append(problem.unsupported(f"{path}.protocol", port.get("protocol", ""), _PROTOCOLS))
    probes.port(problems, f"{path}.targetPort", port.get("targetPort", 0))
    if "appProtocol" in port:
        problem.each(problems, f"{path}.appProtocol", port["appProtocol"], names.label_key(port["appProtocol"]))


def _affinity(problems: Problems, spec: Json) -> None:
    affinity = spec.get("sessionAffinity", "")
    if affinity not in ("ClientIP", "None"):
        problems.append(problem.unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None")))
    if affinity == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= _DAY:
            here = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            problems.append(problem.invalid(here, seconds, f"must be greater than 0 and less than {_DAY}"))


def _unique_ports(problems: Problems, ports: list[Json], kind: str) -> None:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        if kind == "ClusterIP" and port.get("nodePort"):
            words = "may not be used when `type` is 'ClusterIP'"
            problems.append(problem.forbidden(f"spec.ports[{index}].nodePort", words))
        pair = (port.get("protocol", ""), port.get("port", 0))
        if pair in seen:
            problems.append(problem.duplicate(f"spec.ports[{index}]", port))
        seen.add(pair)
