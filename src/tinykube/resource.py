"""What a kind of object is called in the paths of an API server."""

from __future__ import annotations

from dataclasses import dataclass


class BadName(ValueError):
    """What can be no name of an object."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: `pods` of `v1`, `leases` of `coordination.k8s.io/v1`."""

    group: str
    version: str
    plural: str
    namespaced: bool = True
    kind: str = ""

    @property
    def api_version(self) -> str:
        """As `apiVersion` of objects says it: `v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of one object or of a part of it; no namespace means all of them.

        Raises BadName for what can be no name: it would lead to another object.
        """
        for part in (namespace, name):
            if part in (".", "..") or "/" in part or "%" in part:
                raise BadName(f"{part!r} can be no name of {self}: it must not contain '/' or '%', nor be '.' or '..'")
        if self.namespaced and name and not namespace:
            raise BadName(f"{self} {name!r}: the namespace is missing")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join(part for part in (*parts, self.plural, name, subresource) if part)


PODS = Resource("", "v1", "pods", kind="Pod")
NODES = Resource("", "v1", "nodes", namespaced=False, kind="Node")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False, kind="Namespace")
EVENTS = Resource("", "v1", "events", kind="Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", kind="ConfigMap")
SECRETS = Resource("", "v1", "secrets", kind="Secret")
SERVICES = Resource("", "v1", "services", kind="Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", kind="ServiceAccount")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", kind="ResourceQuota")
LEASES = Resource("coordination.k8s.io", "v1", "leases", kind="Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, kind="PriorityClass")
