"""Kinds of objects, and what discovery says about them.

`KINDS` are served by every server.  Custom kinds come from CustomResourceDefinitions (`crds.kind`) and
are given to the store of a server that is to serve them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of object.  `status`: it has a status subresource, so that other writes leave its status alone.

    There is one object for each kind, so that looking things up by kind is cheap.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str = ""
    short: tuple[str, ...] = ()
    namespaced: bool = True
    status: bool = False
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    definition: Mapping[str, Any] | None = None
    """The CustomResourceDefinition of a custom kind."""

    @property
    def custom(self) -> bool:
        """Whether it has no defaults and no rules beyond its schema, and no strategic merge patch."""
        return self.definition is not None

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As messages of the API server name it: `pods`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = Kind(
    "", "v1", "Pod", "pods", "pod", ("po",), status=True,
    subresources=("binding", "eviction", "exec", "log"), categories=("all",),
)  # fmt: skip
NODE = Kind("", "v1", "Node", "nodes", "node", ("no",), namespaced=False, status=True, subresources=("proxy",))
NAMESPACE = Kind(
    "", "v1", "Namespace", "namespaces", "namespace", ("ns",), namespaced=False, status=True, subresources=("finalize",)
)
EVENT = Kind("", "v1", "Event", "events", "event", ("ev",))
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", "configmap", ("cm",))
SECRET = Kind("", "v1", "Secret", "secrets", "secret")
SERVICE = Kind("", "v1", "Service", "services", "service", ("svc",), status=True, categories=("all",))
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", ("sa",))
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas", "resourcequota", ("quota",), status=True)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease")
DEPLOYMENT = Kind(
    "apps", "v1", "Deployment", "deployments", "deployment", ("deploy",), status=True, subresources=("scale",),
    categories=("all",),
)  # fmt: skip
REPLICA_SET = Kind(
    "apps", "v1", "ReplicaSet", "replicasets", "replicaset", ("rs",), status=True, subresources=("scale",),
    categories=("all",),
)  # fmt: skip
DAEMON_SET = Kind("apps", "v1", "DaemonSet", "daemonsets", "daemonset", ("ds",), status=True, categories=("all",))
JOB = Kind("batch", "v1", "Job", "jobs", "job", status=True, categories=("all",))
PRIORITY_CLASS = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", ("pc",), namespaced=False
)

KINDS = (
    POD, NODE, NAMESPACE, EVENT, CONFIG_MAP, SECRET, SERVICE, SERVICE_ACCOUNT, RESOURCE_QUOTA,
    DEPLOYMENT, REPLICA_SET, DAEMON_SET, JOB, LEASE, PRIORITY_CLASS,
)  # fmt: skip
WORKLOADS = (DEPLOYMENT, REPLICA_SET, DAEMON_SET, JOB)
"""Kinds that make pods from a template."""
