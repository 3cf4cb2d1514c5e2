"""The cluster's services as variables: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`, ..."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from subak.model.manifest import Lean, Object


class ServicePort(Lean, frozen=True, gc=False, kw_only=True):
    """A port of a service."""

    port: int
    name: str = ""
    protocol: str = "TCP"


class ServiceSpec(Lean, frozen=True, gc=False, kw_only=True):
    """Where a service is."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: tuple[ServicePort, ...] = ()


class Service(Object, frozen=True, gc=False, kw_only=True):
    """A service."""

    spec: ServiceSpec = ServiceSpec()


def variables(services: Iterable[Service], namespace: str, links: bool) -> dict[str, str]:
    """The variables of a pod in the namespace: the API server's own service and, with links, those of the namespace."""
    mine: dict[str, Service] = {}
    for service in services:
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        home = service.metadata.namespace
        if (home, service.name) == ("default", "kubernetes"):
            mine.setdefault(service.name, service)
        elif links and home == namespace:
            mine[service.name] = service
    found: dict[str, str] = {}
    for _, service in sorted(mine.items()):
        found |= _of(service)
    return found


def _of(service: Service) -> dict[str, str]:
    name, spec = _upper(service.name), service.spec
    host = f"[{spec.cluster_ip}]" if ":" in spec.cluster_ip else spec.cluster_ip
    found = {f"{name}_SERVICE_HOST": spec.cluster_ip, f"{name}_SERVICE_PORT": str(spec.ports[0].port)}
    for port in spec.ports:
        if port.name:
            found[f"{name}_SERVICE_PORT_{_upper(port.name)}"] = str(port.port)
    for index, port in enumerate(spec.ports):
        protocol = port.protocol.lower()
        url = f"{protocol}://{host}:{port.port}"
        if index == 0:
            found[f"{name}_PORT"] = url
        prefix = f"{name}_PORT_{port.port}_{protocol.upper()}"
        found |= {
            prefix: url,
            f"{prefix}_PROTO": protocol,
            f"{prefix}_PORT": str(port.port),
            f"{prefix}_ADDR": spec.cluster_ip,
        }
    return found


def _upper(name: str) -> str:
    return name.replace("-", "_").upper()
