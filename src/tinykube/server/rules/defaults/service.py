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
    if kind in _OUTSIDE or (kind == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("ClusterIP", *_OUTSIDE):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
