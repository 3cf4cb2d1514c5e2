"""Addresses and ports that services get from the cluster.

What is taken is seen from the services that are stored, so nothing has to be kept in step.
"""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address, ip_network
from itertools import count
from typing import Any

from tinykube.server import errors, kinds
from tinykube.server.rules import problem
from tinykube.server.rules.admission import View
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import service as validation
from tinykube.server.rules.validation.service import headless, needs_health_check
from tinykube.status import ApiError, Cause

Json = dict[str, Any]

NETWORK = ip_network("10.96.0.0/16")
PORTS = range(30000, 32768)

# Whoever asks for a certain address or port finds the first ones free: none of them is given out unasked.
_RESERVED_ADDRESSES = 256
_RESERVED_PORTS = 86


def creation(service: Json, view: View, dry_run: bool) -> None:
    """Give a new service what it needs, in place."""
    spec = service["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _families(service, None)
    _address(service, view, dry_run)
    ports = _Ports(service, None, view, dry_run)
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        ports.give()
    ports.give_health_check(None)


def update(service: Json, old: Json, view: View, dry_run: bool) -> None:
    """Keep what a service has got already, and give it what it needs now, in place."""
    spec, before = service["spec"], old["spec"]
    _kept(spec, before)
    _in_step(spec, before)
    _families(service, before)
    if before.get("type") == "ExternalName":
        _address(service, view, dry_run)
    ports = _Ports(service, before, view, dry_run)
    if spec.get("type") in ("NodePort", "LoadBalancer"):
        ports.give()
    ports.give_health_check(before)
    _dropped(spec, before)


def _kept(spec: Json, before: Json) -> None:
    """Who writes the same manifest again does not know what was allocated."""
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        if not spec.get("clusterIP") and before.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
        if not spec.get("clusterIPs") and before.get("clusterIPs"):
            spec["clusterIPs"] = before["clusterIPs"]
    if _on_nodes(spec) and _on_nodes(before):
        taken = {port.get("nodePort") for port in spec.get("ports", ())}
        by_name = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            known = by_name.get(port.get("name", ""))
            if not port.get("nodePort") and known and known not in taken:
                port["nodePort"] = known
    if needs_health_check(spec) and needs_health_check(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before["healthCheckNodePort"]


def _in_step(spec: Json, before: Json) -> None:
    """One address has two fields; who changes the first means both."""
    if spec.get("clusterIP", "") != before.get("clusterIP", "") and spec.get("clusterIPs") == before.get("clusterIPs"):
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        else:
            spec.pop("clusterIPs", None)


def _families(service: Json, before: Json | None) -> None:
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return
    bare = spec.get("clusterIP") == "None" and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        known = (before or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = known or ("RequireDualStack" if bare else "SingleStack")
    problems: Problems = []
    validation.addresses(problems, spec, before)
    _raise(service, problems)
    policy = spec["ipFamilyPolicy"]
    _count_families(problems, spec, before, policy)
    for index, address in enumerate(spec.get("clusterIPs", ())):
        if address != "None" and index >= len(spec.get("ipFamilies", ())):
            if ":" in address:
                words = "IPv6 is not configured on this cluster"
                problems.append(problem.invalid(f"spec.clusterIPs[{index}]", spec["clusterIPs"], words))
            else:
                spec["ipFamilies"] = [*spec.get("ipFamilies", ()), "IPv4"]
    _raise(service, problems)
    if bare:
        families = spec.get("ipFamilies") or ["IPv4"]
        if len(families) < 2 and policy != "SingleStack":
            families = [*families, "IPv6" if families[0] == "IPv4" else "IPv4"]
        spec["ipFamilies"] = families
        return
    if policy == "RequireDualStack":
        words = "this cluster is not configured for dual-stack services"
        problems.append(problem.invalid("spec.ipFamilyPolicy", policy, words))
    for index, family in enumerate(spec.get("ipFamilies", ())):
        if family != "IPv4":
            problems.append(problem.invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    _raise(service, problems)
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = ["IPv4"]


def _count_families(problems: Problems, spec: Json, before: Json | None, policy: str) -> None:
    """Of one family or two, of addresses and of families alike."""
    for key, one, many in (
        ("clusterIPs", "cluster IP", "cluster IPs"),
        ("ipFamilies", "IP family", "IP families"),
    ):
        given, was = spec.get(key, []), (before or {}).get(key, [])
        if policy == "SingleStack":
            if len(given) > 1 and given == was:
                spec[key] = given[:1]
            elif len(given) == 2:
                words = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {many} are specified"
                problems.append(problem.invalid("spec.ipFamilyPolicy", policy, words))
        elif 0 < len(given) < len(was):
            words = f"must be 'SingleStack' to release the secondary {one}"
            problems.append(problem.invalid("spec.ipFamilyPolicy", policy, words))


def _address(service: Json, view: View, dry_run: bool) -> None:
    spec = service["spec"]
    if spec.get("type") == "ExternalName" or headless(spec):
        return
    taken = {address for each in view.list(kinds.SERVICE) for address in each["spec"].get("clusterIPs", ())}
    wanted = spec.get("clusterIPs")
    if wanted:
        why = _unavailable(wanted[0], taken, dry_run)
        if why:
            words = f"failed to allocate IP {wanted[0]}: {why}"
            _raise(service, [problem.invalid("spec.clusterIPs", wanted, words)])
        return
    free = str(NETWORK.network_address) if dry_run else _free_address(taken)  # a dry run's address is nobody's
    if free is None:
        words = f"failed to allocate a serviceIP for Service {problem.quote(_name(service))}: range is full"
        raise ApiError(500, "InternalError", f"Internal error occurred: {words}", None, [Cause("", words)])
    spec["clusterIP"], spec["clusterIPs"] = free, [free]


def _unavailable(text: str, taken: set[str], dry_run: bool) -> str:
    """Why a service cannot have an address."""
    address = ip_address(text)
    if address not in NETWORK or address in (NETWORK.network_address, NETWORK.broadcast_address):
        if dry_run:
            return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {NETWORK}"
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if str(address) in taken and not dry_run else ""


def _free_address(taken: set[str]) -> str | None:
    first, last = int(NETWORK.network_address), int(NETWORK.broadcast_address)
    numbers = [*range(first + _RESERVED_ADDRESSES, last), *range(first + 1, first + _RESERVED_ADDRESSES)]
    return next((text for text in map(str, map(IPv4Address, numbers)) if text not in taken), None)


class _Ports:
    """Ports of nodes for one service."""

    def __init__(self, service: Json, before: Json | None, view: View, dry_run: bool) -> None:
        self.service = service
        self.spec: Json = service["spec"]
        self.own = {port.get("nodePort") for port in (before or {}).get("ports", ())} - {None}
        self.taken = _taken_ports(view) - self.own
        self.dry_run = dry_run

    def give(self) -> None:
        """To each port of the service one of the nodes'; those of the same number share it."""
        spec = self.spec
        given: dict[int, int] = {}
        for index, port in enumerate(spec.get("ports", ())):
            wanted = port.get("nodePort", 0)
            if not wanted and spec.get("type") == "LoadBalancer" and not spec.get("allocateLoadBalancerNodePorts"):
                continue
            number = port.get("port", 0)
            if not wanted:
                same = [
                    each["nodePort"] for each in spec["ports"] if each.get("port", 0) == number and each.get("nodePort")
                ]
                port["nodePort"] = given.get(number) or (same[0] if same else self._free())
            elif wanted not in self.own and given.get(number) != wanted:
                self._claim(index, wanted)
            given.setdefault(number, port["nodePort"])
            self.taken.add(port["nodePort"])

    def give_health_check(self, before: Json | None) -> None:
        """A port that says which nodes serve the service."""
        needed = needs_health_check(self.spec) and not (before and needs_health_check(before))
        if needed and not self.spec.get("healthCheckNodePort"):
            self.spec["healthCheckNodePort"] = self._free()

    def _claim(self, index: int, wanted: int) -> None:
        why = ""
        if wanted not in PORTS and not self.dry_run:
            why = f"provided port is not in the valid range. The range of valid ports is {PORTS.start}-{PORTS.stop - 1}"
        elif wanted in self.taken:
            why = "provided port is already allocated"
        if why:
            _raise(self.service, [problem.invalid(f"spec.ports[{index}].nodePort", wanted, why)])

    def _free(self) -> int:
        if self.dry_run:  # ports that no node has
            free: int | None = next(port for port in count(PORTS.stop + 1) if port not in self.taken)
        else:
            ports = [*PORTS[_RESERVED_PORTS:], *PORTS[:_RESERVED_PORTS]]
            free = next((port for port in ports if port not in self.taken | self.own), None)
        if free is None:
            words = "failed to allocate a nodePort: range is full"
            raise ApiError(500, "InternalError", f"Internal error occurred: {words}", None, [Cause("", words)])
        self.taken.add(free)
        return free


def _taken_ports(view: View) -> set[int]:
    services = [each["spec"] for each in view.list(kinds.SERVICE)]
    taken = {port["nodePort"] for spec in services for port in spec.get("ports", ()) if port.get("nodePort")}
    return taken | {spec["healthCheckNodePort"] for spec in services if spec.get("healthCheckNodePort")}


def _on_nodes(spec: Json) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _dropped(spec: Json, before: Json) -> None:
    """What a service of the new type does not have, and the user did not ask for either."""
    kind, was = spec.get("type"), before.get("type")
    if kind == "ExternalName" and was != "ExternalName":
        for key in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(key) == before.get(key):
                spec.pop(key, None)
    outside = ("NodePort", "LoadBalancer")
    if was in outside and kind not in outside:
        old = {port.get("nodePort") for port in before.get("ports", ())}
        if all(port.get("nodePort") in old | {None} for port in spec.get("ports", ())):
            for port in spec.get("ports", ()):
                port.pop("nodePort", None)
        if spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
            spec.pop("externalTrafficPolicy", None)
    unneeded = needs_health_check(before) and not needs_health_check(spec)
    if unneeded and spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
        spec.pop("healthCheckNodePort", None)
    if was == "LoadBalancer" != kind:
        for key in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(key) == before.get(key):
                spec.pop(key, None)


def _raise(service: Json, problems: Problems) -> None:
    if problems:
        raise errors.invalid(kinds.SERVICE, _name(service), problems)


def _name(service: Json) -> str:
    return str(service["metadata"].get("name", ""))
