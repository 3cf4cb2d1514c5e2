"""What a service is where its author says nothing."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_OUTSIDE = ("NodePort", "LoadBalancer")


def fill(service: Json) -> None:
    """Complete a service."""
    spec = service["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP" and not spec.get("sessionAffinityConfig", {}).get("clientIP"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (0, ""):
            port["targetPort"] = port["port"]
    if accessible(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("ClusterIP", *_OUTSIDE):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in service["status"].get("loadBalancer", {}).get("ingress", ()):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def accessible(spec: Json) -> bool:
    """Whether the service can be reached from outside of the cluster."""
    return spec.get("type") in _OUTSIDE or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))
