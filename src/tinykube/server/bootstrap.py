"""What is there before anybody has created anything."""

from __future__ import annotations

from typing import Any

from tinykube.server import rules
from tinykube.server.kinds import NAMESPACE, PRIORITY_CLASS, SERVICE_ACCOUNT, Kind
from tinykube.server.options import WriteOptions
from tinykube.server.registry import Registry, Target

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
ACCOUNT = "default"

_PRIORITY_CLASSES = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)
_BY_US = WriteOptions("kube-apiserver")


def fill(registry: Registry) -> None:
    """Create what is missing."""
    for name in NAMESPACES:
        _create(registry, NAMESPACE, "", name)
    for name, value, description in _PRIORITY_CLASSES:
        _create(registry, PRIORITY_CLASS, "", name, value=value, description=description)
    for namespace in registry.store.list(NAMESPACE):
        if not namespace["metadata"].get("deletionTimestamp"):
            add_account(registry, namespace["metadata"]["name"])


def add_account(registry: Registry, namespace: str) -> None:
    """Every namespace has a service account that its pods run under."""
    _create(registry, SERVICE_ACCOUNT, namespace, ACCOUNT)


def _create(registry: Registry, kind: Kind, namespace: str, name: str, **fields: Any) -> None:
    if registry.store.get(kind, namespace, name) is None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        object, _ = rules.read(
            kind, {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **fields}
        )
        registry.create(Target(kind, namespace), object, _BY_US)
