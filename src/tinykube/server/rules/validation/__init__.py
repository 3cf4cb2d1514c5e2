"""Whether an object makes sense, and whether it may become what it is asked to become.

Each kind has a module, or a function in `small`.  They look at objects that are decoded and complete, and note all that
is wrong in the order in which the API server tells it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server import kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import (
    custom,
    data,
    event,
    job,
    metadata,
    node,
    pod,
    pod_update,
    quota,
    service,
    small,
    workload,
)

Json = dict[str, Any]

_CREATION: dict[Kind, Callable[[Problems, Json], None]] = {
    kinds.POD: pod.creation,
    kinds.NODE: node.creation,
    kinds.NAMESPACE: small.namespace,
    kinds.EVENT: event.check,
    kinds.CONFIG_MAP: data.config_map,
    kinds.SECRET: data.secret,
    kinds.SERVICE: service.creation,
    kinds.SERVICE_ACCOUNT: small.service_account,
    kinds.RESOURCE_QUOTA: quota.creation,
    kinds.LEASE: small.lease,
    kinds.PRIORITY_CLASS: small.priority_class,
    kinds.DEPLOYMENT: workload.deployment,
    kinds.REPLICA_SET: workload.replica_set,
    kinds.DAEMON_SET: workload.daemon_set,
    kinds.JOB: job.creation,
}
_UPDATE: dict[tuple[Kind, str], Callable[[Problems, Json, Json], None]] = {
    (kinds.POD, ""): pod_update.update,
    (kinds.POD, "status"): pod_update.status,
    (kinds.NODE, ""): node.update,
    (kinds.NODE, "status"): node.status,
    (kinds.NAMESPACE, ""): small.namespace_update,
    (kinds.NAMESPACE, "status"): small.namespace_status,
    (kinds.NAMESPACE, "finalize"): small.namespace_finalize,
    (kinds.EVENT, ""): lambda problems, new, old: event.check(problems, new),
    (kinds.CONFIG_MAP, ""): data.config_map_update,
    (kinds.SECRET, ""): data.secret_update,
    (kinds.SERVICE, ""): service.update,
    (kinds.SERVICE, "status"): service.status,
    (kinds.SERVICE_ACCOUNT, ""): small.service_account_update,
    (kinds.RESOURCE_QUOTA, ""): quota.update,
    (kinds.RESOURCE_QUOTA, "status"): quota.status,
    (kinds.LEASE, ""): small.lease_update,
    (kinds.PRIORITY_CLASS, ""): small.priority_class_update,
    (kinds.DEPLOYMENT, ""): workload.deployment_update,
    (kinds.DEPLOYMENT, "scale"): workload.deployment_update,
    (kinds.DEPLOYMENT, "status"): workload.status,
    (kinds.REPLICA_SET, ""): workload.replica_set_update,
    (kinds.REPLICA_SET, "scale"): workload.replica_set_update,
    (kinds.REPLICA_SET, "status"): workload.status,
    (kinds.DAEMON_SET, ""): workload.daemon_set_update,
    (kinds.DAEMON_SET, "status"): workload.status,
    (kinds.JOB, ""): job.update,
    (kinds.JOB, "status"): job.status,
}

# Kinds whose own rules do not look at the metadata.
_UNNAMED = (kinds.EVENT,)


def of_creation(kind: Kind, object: Json) -> Problems:
    """What is wrong with a new object."""
    problems: Problems = []
    if kind.custom:
        custom.creation(problems, kind, object)
    else:
        _CREATION[kind](problems, object)
    if not problems and kind in _UNNAMED:
        metadata.creation(problems, object["metadata"], kind.namespaced, metadata.segment, core=False)
    return problems


def of_update(kind: Kind, new: Json, old: Json, subresource: str = "") -> Problems:
    """What is wrong with what an object is to become."""
    problems: Problems = []
    if kind.custom:
        custom.update(problems, kind, new, old, subresource)
    else:
        _UPDATE[kind, subresource](problems, new, old)
    changed = new["metadata"].get("finalizers") != old["metadata"].get("finalizers")
    if problems or kind in _UNNAMED or changed:
        common: Problems = []  # every rule that looks at the metadata reports what is wrong with it
        metadata.creation(common, new["metadata"], kind.namespaced, metadata.segment, core=False)
        metadata.update(common, new["metadata"], old["metadata"], core=False)
        problems = common + problems
    return problems
