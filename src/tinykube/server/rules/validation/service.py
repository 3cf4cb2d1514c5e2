"""What a service must be, and what of it may change."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.defaults.service import accessible
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names, probes

Json = dict[str, Any]

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_DAY = 86400


def creation(problems: Problems, service: Json) -> None:
    """Of a new service."""
    metadata.creation(problems, service["metadata"], True, names.label_name)
    _whole(problems, service)


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of a service that is written again."""
    metadata.update(problems, new["metadata"], old["metadata"])
    spec, before = new["spec"], old["spec"]
    _same_addresses(problems, spec, before)
    _same_families(problems, spec, before)
    if "LoadBalancer" == spec.get("type") == before.get("type"):
        given, was = spec.get("loadBalancerClass"), before.get("loadBalancerClass")
        if given != was:
            problems.append(problem.invalid("spec.loadBalancerClass", given, "may not change once set"))
    _balancer_class(problems, spec)
    if needs_health_check(spec) and needs_health_check(before):
        port, was_port = spec.get("healthCheckNodePort"), before.get("healthCheckNodePort")
        if port != was_port:
            problems.append(problem.forbidden("spec.healthCheckNodePort", "field is immutable"))
    _whole(problems, new, before)


def status(problems: Problems, new: Json, old: Json) -> None:
    """Of a service whose status is written."""
    metadata.update(problems, new["metadata"], old["metadata"])
    path, ingress = "status.loadBalancer.ingress", new["status"].get("loadBalancer", {}).get("ingress", ())
    if ingress and new["spec"].get("type") != "LoadBalancer":
        problems.append(problem.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'"))
        return
    for index, each in enumerate(ingress):
        here, host = f"{path}[{index}]", each.get("hostname", "")
        if each.get("ip"):
            problem.each(problems, f"{here}.ip", each["ip"], names.ip(each["ip"]))
        if host:
            problem.each(problems, f"{here}.hostname", host, names.dns_subdomain(host))
            if not names.ip(host):
                words = "must be a DNS name, not an IP address"
                problems.append(problem.invalid(f"{here}.hostname", host, words))


def addresses(problems: Problems, spec: Json, before: Json | None) -> None:
    """Of a service's cluster addresses and their families."""
    if spec.get("type") == "ExternalName":
        return
    path, given = "spec.clusterIPs", spec.get("clusterIPs", [])
    first = spec.get("clusterIP", "")
    if first:
        if not given:
            problems.append(problem.required(path))
        elif given[0] != first:
            problems.append(problem.invalid(path, given, "first value must match `clusterIP`"))
    elif given:
        problems.append(problem.invalid(path, given, "must be empty when `clusterIP` is not specified"))
    families = spec.get("ipFamilies", ())
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            problems.append(problem.unsupported(f"spec.ipFamilies[{index}]", family, _FAMILIES))
        if family in families[:index]:
            problems.append(problem.duplicate(f"spec.ipFamilies[{index}]", family))
    if spec.get("ipFamilyPolicy") not in (None, *_POLICIES):
        problems.append(problem.unsupported("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], _POLICIES))
    if _well_formed(problems, path, given, before):
        _families_match(problems, path, given, families)


def headless(spec: Json) -> bool:
    """Whether a service has no address of its own on purpose."""
    return bool(spec.get("clusterIPs") == ["None"])


def needs_health_check(spec: Json) -> bool:
    """Whether a service has a port that says which nodes serve it."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _well_formed(problems: Problems, path: str, given: list[str], before: Json | None) -> bool:
    known = (before or {}).get("clusterIPs", ())
    right = True
    for index, address in enumerate(given):
        if index == 0 and address == "None":
            if len(given) > 1:
                right = False
                problems.append(problem.invalid(path, given, "'None' must be the first and only value"))
            continue
        wrong = () if address in known else names.ip(address)
        problem.each(problems, f"{path}[{index}]", address, wrong)
        right = right and not wrong
    if len(given) > 2:
        problems.append(problem.invalid(path, given, "may only hold up to 2 values"))
    return right


def _families_match(problems: Problems, path: str, given: list[str], families: list[str]) -> None:
    if len(given) > 1 and len({":" in each for each in given}) == 1:
        words = "may specify no more than one IP for each IP family"
        problems.append(problem.invalid(path, given, words))
    if given == ["None"]:
        return
    for index, (address, family) in enumerate(zip(given, families, strict=False)):
        if family in _FAMILIES and (":" in address) != (family == "IPv6"):
            words = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            problems.append(problem.invalid(f"{path}[{index}]", address, words))


def _whole(problems: Problems, service: Json, before: Json | None = None) -> None:
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
    addresses(problems, spec, before)
    _external(problems, spec, before)
    if not kind:
        problems.append(problem.required("spec.type"))
    elif kind not in _TYPES:
        problems.append(problem.unsupported("spec.type", kind, _TYPES))
    _unique_ports(problems, ports, kind)
    _balancer(problems, spec, kind)
    _traffic(problems, spec, kind)


def _by_type(problems: Problems, spec: Json, kind: str) -> None:
    if kind in ("LoadBalancer", "NodePort") and headless(spec):
        problems.append(problem.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        for key in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(key):
                problems.append(problem.forbidden(f"spec.{key}", "may not be set for ExternalName services"))
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


def _external(problems: Problems, spec: Json, before: Json | None) -> None:
    known = (before or {}).get("externalIPs", ())
    for index, address in enumerate(spec.get("externalIPs", ())):
        if address not in known:
            problem.each(problems, f"spec.externalIPs[{index}]", address, names.ip(address) or _special(address))


def _special(address: str) -> names.Wrong:
    """Addresses that only one machine means by themselves."""
    if address in ("0.0.0.0", "::"):
        return (f"may not be unspecified ({address})",)
    if address.startswith("127.") or address == "::1":
        return ("may not be in the loopback range (127.0.0.0/8, ::1/128)",)
    if address.startswith("169.254.") or address.lower().startswith("fe80:"):
        return ("may not be in the link-local range (169.254.0.0/16, fe80::/10)",)
    if address.startswith("224.0.0.") or address.lower().startswith("ff02:"):
        return ("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",)
    return ()


def _unique_ports(problems: Problems, ports: list[Json], kind: str) -> None:
    on_nodes: set[tuple[str, int]] = set()
    if kind == "ClusterIP":
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                words = "may not be used when `type` is 'ClusterIP'"
                problems.append(problem.forbidden(f"spec.ports[{index}].nodePort", words))
    for index, port in enumerate(ports):
        number = port.get("nodePort", 0)
        if number and (port.get("protocol", ""), number) in on_nodes:
            problems.append(problem.duplicate(f"spec.ports[{index}].nodePort", number))
        on_nodes.add((port.get("protocol", ""), number))
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (port.get("protocol", ""), port.get("port", 0))
        if pair in seen:
            told = {
                "Name": "",
                "Protocol": pair[0],
                "AppProtocol": None,
                "Port": pair[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            problems.append(problem.duplicate(f"spec.ports[{index}]", told))
        seen.add(pair)


def _balancer(problems: Problems, spec: Json, kind: str) -> None:
    words = "may only be used when `type` is 'LoadBalancer'"
    ranges = spec.get("loadBalancerSourceRanges", ())
    if ranges and kind != "LoadBalancer":
        problems.append(problem.forbidden("spec.LoadBalancerSourceRanges", words))
    for index, text in enumerate(ranges):
        problem.each(problems, f"spec.LoadBalancerSourceRanges[{index}]", text.strip(), names.cidr(text.strip()))
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        problems.append(problem.forbidden("spec.allocateLoadBalancerNodePorts", words))
    _balancer_class(problems, spec)


def _balancer_class(problems: Problems, spec: Json) -> None:
    given = spec.get("loadBalancerClass")
    if given is not None:
        if spec.get("type") == "LoadBalancer":
            problem.each(problems, "spec.loadBalancerClass", given, names.label_key(given))
        else:
            words = "may only be used when `type` is 'LoadBalancer'"
            problems.append(problem.forbidden("spec.loadBalancerClass", words))


def _traffic(problems: Problems, spec: Json, kind: str) -> None:
    outside = spec.get("externalTrafficPolicy", "")
    if not accessible(spec):
        if outside:
            words = "may only be set for externally-accessible services"
            problems.append(problem.invalid("spec.externalTrafficPolicy", outside, words))
    elif outside not in ("Cluster", "Local"):
        problems.append(problem.unsupported("spec.externalTrafficPolicy", outside, ("Cluster", "Local")))
    check = spec.get("healthCheckNodePort", 0)
    if needs_health_check(spec):
        problem.each(problems, "spec.healthCheckNodePort", check, names.port_number(check))
    elif check:
        words = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        problems.append(problem.invalid("spec.healthCheckNodePort", check, words))
    inside = spec.get("internalTrafficPolicy")
    if inside is None and kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        problems.append(problem.required("spec.internalTrafficPolicy"))
    elif inside not in (None, "Cluster", "Local"):
        problems.append(problem.unsupported("spec.internalTrafficPolicy", inside, ("Cluster", "Local")))
    known = ("PreferClose", "PreferSameZone", "PreferSameNode")
    if spec.get("trafficDistribution") not in (None, *known):
        problems.append(problem.unsupported("spec.trafficDistribution", spec["trafficDistribution"], known))


def _same_addresses(problems: Problems, spec: Json, before: Json) -> None:
    if "ExternalName" in (spec.get("type"), before.get("type")) or (headless(spec) and headless(before)):
        return
    new, old = spec.get("clusterIPs", []), before.get("clusterIPs", [])
    path = "spec.clusterIPs"
    if len(new) == len(old):
        for index, (one, other) in enumerate(zip(new, old, strict=True)):
            if one != other:
                problems.append(problem.invalid(f"{path}[{index}]", new, "may not change once set"))
    elif not new:
        problems.append(problem.invalid(f"{path}[0]", None, "primary clusterIP can not be unset"))
    elif old and new[0] != old[0]:
        problems.append(problem.invalid(f"{path}[0]", new, "may not change once set"))


def _same_families(problems: Problems, spec: Json, before: Json) -> None:
    if "ExternalName" in (spec.get("type"), before.get("type")) or headless(spec) or headless(before):
        return
    new, old = spec.get("ipFamilies", []), before.get("ipFamilies", [])
    if new and old and new[0] != old[0]:
        problems.append(problem.invalid("spec.ipFamilies[0]", new, "may not change once set"))
