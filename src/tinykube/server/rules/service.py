"""Addresses and node ports of services.

Nothing routes a service here, so it gets only what users and manifests look at: a cluster address and node ports.  The
stored services say what is taken, so nothing has to be kept in step.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

from tinykube.server import errors, kinds
from tinykube.server.rules import problem
from tinykube.server.rules.admission import View
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import service as validation
from tinykube.server.rules.validation.service import headless
from tinykube.status import ApiError

Json = dict[str, Any]

NETWORK = ip_network("10.96.0.0/16")
PORTS = range(30000, 32768)

# The first ones are given out last, so that a certain one is likely to be free for those who ask for it.
_RESERVED_ADDRESSES = 256
_RESERVED_PORTS = 86
_PORTS_IN_TURN = (*PORTS[_RESERVED_PORTS:], *PORTS[:_RESERVED_PORTS])
_OUTSIDE = ("NodePort", "LoadBalancer")


def creation(service: Json, view: View, dry_run: bool) -> None:
    """Give a new service what it needs, in place."""
    spec = service["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _families(spec, {})
    _address(service, view, dry_run)
    _node_ports(service, {}, view)


def update(service: Json, old: Json, view: View, dry_run: bool) -> None:
    """Keep what a service has got already, and give it what it needs now, in place."""
    spec, before = service["spec"], old["spec"]
    _kept(spec, before)
    if spec.get("clusterIP", "") != before.get("clusterIP", "") and spec.get("clusterIPs") == before.get("clusterIPs"):
        # One address has two fields; a change of the first means both.
        spec["clusterIPs"] = [spec["clusterIP"]] if spec.get("clusterIP") else []
    if not spec.get("clusterIPs"):
        spec.pop("clusterIPs", None)
    _families(spec, before)
    if before.get("type") == "ExternalName":
        _address(service, view, dry_run)
    _node_ports(service, before, view)
    _dropped(spec, before)


def _kept(spec: Json, before: Json) -> None:
    """A manifest that is written again does not know what was allocated."""
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        for key in ("clusterIP", "clusterIPs"):
            if not spec.get(key) and before.get(key):
                spec[key] = before[key]
    if spec.get("type") in _OUTSIDE and before.get("type") in _OUTSIDE:
        taken = {port.get("nodePort") for port in spec.get("ports", ())}
        by_name = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            known = by_name.get(port.get("name", ""))
            if not port.get("nodePort") and known and known not in taken:
                port["nodePort"] = known


def _families(spec: Json, before: Json) -> None:
    if spec.get("type") != "ExternalName":
        bare = spec.get("clusterIP") == "None" and not spec.get("selector")
        default = "RequireDualStack" if bare else "SingleStack"
        policy = spec.setdefault("ipFamilyPolicy", before.get("ipFamilyPolicy", default))
        spec.setdefault("ipFamilies", ["IPv4"] if policy == "SingleStack" or not bare else ["IPv4", "IPv6"])


def _address(service: Json, view: View, dry_run: bool) -> None:
    spec = service["spec"]
    if spec.get("type") == "ExternalName" or headless(spec):
        return
    taken = {address for each in view.list(kinds.SERVICE) for address in each["spec"].get("clusterIPs", ())}
    wanted = spec.get("clusterIPs")
    if wanted:
        problems: Problems = []
        validation.address(problems, spec)
        why = "" if problems else _unavailable(wanted[0], taken)
        if why:
            words = f"failed to allocate IP {wanted[0]}: {why}"
            problems.append(problem.invalid("spec.clusterIPs", wanted, words))
        _raise(service, problems)
        return
    free = str(NETWORK.network_address) if dry_run else _free_address(taken)  # a dry run takes no address
    spec["clusterIP"], spec["clusterIPs"] = free, [free]


def _unavailable(text: str, taken: set[str]) -> str:
    """Why a service cannot have an address."""
    address = ip_address(text)
    if address not in NETWORK or address in (NETWORK.network_address, NETWORK.broadcast_address):
        return "the provided network does not match the current range"
    return "provided IP is already allocated" if str(address) in taken else ""


def _free_address(taken: set[str]) -> str:
    first, last = int(NETWORK.network_address), int(NETWORK.broadcast_address)
    numbers = [*range(first + _RESERVED_ADDRESSES, last), *range(first + 1, first + _RESERVED_ADDRESSES)]
    for address in map(str, map(IPv4Address, numbers)):
        if address not in taken:
            return address
    raise _full("failed to allocate a serviceIP")


def _node_ports(service: Json, before: Json, view: View) -> None:
    """Give each port of the service one of the nodes'; those of the same number share it."""
    spec = service["spec"]
    if spec.get("type") not in _OUTSIDE:
        return
    own: set[int] = {port.get("nodePort") for port in before.get("ports", ())}
    services = [each["spec"] for each in view.list(kinds.SERVICE)]
    taken = {port.get("nodePort") for each in services for port in each.get("ports", ())} - own
    free = (port for port in _PORTS_IN_TURN if port not in taken and port not in own)
    given: dict[int, int] = {}
    for index, port in enumerate(spec.get("ports", ())):
        number, wanted = port.get("port", 0), port.get("nodePort", 0)
        if not wanted and spec.get("allocateLoadBalancerNodePorts") is False:
            continue
        if not wanted:
            port["nodePort"] = given.get(number) or _next(free)
        elif wanted not in own and given.get(number) != wanted:
            _claim(service, index, wanted, taken)
        given.setdefault(number, port["nodePort"])
        taken.add(port["nodePort"])


def _claim(service: Json, index: int, wanted: int, taken: set[int]) -> None:
    why = "provided port is already allocated" if wanted in taken else ""
    if wanted not in PORTS:
        why = f"provided port is not in the valid range. The range of valid ports is {PORTS.start}-{PORTS.stop - 1}"
    if why:
        _raise(service, [problem.invalid(f"spec.ports[{index}].nodePort", wanted, why)])


def _next(free: Iterator[int]) -> int:
    for port in free:
        return port
    raise _full("failed to allocate a nodePort")


def _dropped(spec: Json, before: Json) -> None:
    """Take off what a service of the new type does not have, if the user did not ask for it either."""
    kind, was = spec.get("type"), before.get("type")
    gone: list[str] = []
    if kind == "ExternalName" != was:
        gone += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]
    if was in _OUTSIDE and kind not in _OUTSIDE:
        gone.append("externalTrafficPolicy")
        old = {port.get("nodePort") for port in before.get("ports", ())}
        for port in spec.get("ports", ()):
            if port.get("nodePort") in old:
                port.pop("nodePort", None)
    if was == "LoadBalancer" != kind:
        gone += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    for key in gone:
        if spec.get(key) == before.get(key):
            spec.pop(key, None)


def _full(words: str) -> ApiError:
    return errors.internal(f"{words}: range is full")


def _raise(service: Json, problems: Problems) -> None:
    if problems:
        raise errors.invalid(kinds.SERVICE, service["metadata"].get("name", ""), problems)
