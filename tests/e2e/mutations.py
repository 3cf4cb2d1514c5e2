"""Random changes to objects, right and wrong ones, as their schema suggests them."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.support.custom import DEVICE, POD_GROUP, QUEUE
from tests.tinykube.server.rules.objects import named, pod
from tinykube.server import kinds, schema
from tinykube.server.kinds import Kind
from tinykube.server.schema import Field

Json = dict[str, Any]

# Names, values of enumerations and texts that are none of them.
_WORDS = (
    "", "a", "b", "A", "a b", "a/b", "a.b", "example.com/x", "-", "1", "main", "one", "Always", "Never", "OnFailure",
    "IfNotPresent", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Equal", "NoSchedule", "NoExecute", "TCP", "UDP",
    "None", "Default", "ClusterFirst", "metadata.name", "limits.cpu", "requests.memory", "/a", "../a", "..a", "/",
    "10.0.0.1", "::1", "10.0.0.0/8", "File", "HTTP", "RuntimeDefault", "Localhost", "kubernetes.io/hostname", "x" * 70,
    "Terminating", "BestEffort", "PriorityClass", "DoNotSchedule", "ScheduleAnyway", "Honor", "cpu", "linux",
    "Recursive", "Merge", "Memory", "NodePort", "LoadBalancer", "ClusterIP", "ExternalName", "IPv4", "SingleStack",
    "Local", "Cluster", "ClientIP", "v1", "Pod",
)  # fmt: skip
_NUMBERS = (-1, 0, 1, 2, 5, 80, 443, 512, 30001, 70000, 2**31 - 1, 2**31, 2**40)
_AMOUNTS = ("0", "1", "2", "1500m", "-1", "64Mi", "1.5Gi", "0.0001", "1e3", "4Mi", "100")
_RESOURCES = (
    "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "x", "pods", "requests.cpu",
    "requests.nvidia.com/gpu", "storage",
)  # fmt: skip
_TIMES = ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05.5+01:00", "x")
_FINE_TIMES = ("2024-01-02T03:04:05.000001Z", "2024-01-02T03:04:05.5Z")
_BYTES = ("YQ==", "", "YR==", "!")
_WRONG: tuple[Any, ...] = (None, 5, "x", True)

# What belongs to the registry, needs kinds that we do not serve, or has rules that we leave out on purpose.
_UNTOUCHED = frozenset((
    "apiVersion", "kind", "managedFields", "status", "namespace", "name", "generateName", "selfLink", "uid",
    "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "runtimeClassName", "overhead", "windowsOptions", "automountServiceAccountToken", "ephemeralContainers",
    "ephemeral",
    "clusterTrustBundle", "podCertificate", "claims", "declaredFeatures", "config",
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker",
    "gcePersistentDisk", "gitRepo", "glusterfs", "iscsi", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd",
    "scaleIO", "storageos", "vsphereVolume", "allocatedResourcesStatus", "user",
    "volumeStatus", "extendedResourceClaimStatus", "resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses",
))  # fmt: skip
_GROUP = {"apiVersion": POD_GROUP.api_version, "kind": "PodGroup", "spec": {}}
_QUEUE = {"apiVersion": QUEUE.api_version, "kind": "Queue", "spec": {}}
_DEVICE = {"apiVersion": DEVICE.api_version, "kind": "Device", "spec": {"devices": [{}]}}
_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

RICH = pod({
    "metadata.labels": {"a": "b"},
    "spec.volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "x"}}],
    "spec.containers[0].volumeMounts": [{"name": "a", "mountPath": "/a"}],
    "spec.containers[0].env": [{"name": "A", "value": "b"}],
    "spec.containers[0].ports": [{"containerPort": 80}],
    "spec.containers[0].resources": {"limits": {"cpu": "1"}},
    "spec.containers[0].livenessProbe": {"exec": {"command": ["a"]}},
    "spec.containers[0].securityContext": {"runAsUser": 1},
    "spec.initContainers": [{"name": "i", "image": "i"}],
    "spec.tolerations": [{"key": "a", "operator": "Exists"}],
    _TERMS: [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}],
    "spec.topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
})  # fmt: skip

BASES: tuple[tuple[Kind, Json], ...] = (
    (kinds.POD, pod()),
    (kinds.POD, RICH),
    (kinds.POD, RICH),
    (kinds.NODE, named("Node", {"spec.taints": [{"key": "a", "effect": "NoSchedule"}]}, namespace="")),
    (kinds.CONFIG_MAP, named("ConfigMap", {"data": {"a": "b"}})),
    (kinds.SECRET, named("Secret", {"stringData": {"a": "b"}})),
    (kinds.RESOURCE_QUOTA, named("ResourceQuota", {"spec": {"hard": {"pods": "1"}}})),
    (kinds.LEASE, named("Lease", {"spec": {"holderIdentity": "a"}}, kinds.LEASE.api_version)),
    (kinds.PRIORITY_CLASS, named("PriorityClass", {"value": 1}, kinds.PRIORITY_CLASS.api_version, namespace="")),
    (kinds.EVENT, named("Event", {"involvedObject": {"namespace": "default"}})),
    (kinds.SERVICE_ACCOUNT, named("ServiceAccount")),
    (kinds.NAMESPACE, named("Namespace", namespace="")),
    (POD_GROUP, _GROUP | {"metadata": {"name": "one", "namespace": "default"}}),
    (QUEUE, _QUEUE | {"metadata": {"name": "one"}}),
    (DEVICE, _DEVICE | {"metadata": {"name": "one"}}),
)


class Mutations:
    """Changes that one seed stands for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def object(self) -> tuple[Kind, Json]:
        """One of the bases, changed in one to three places."""
        kind, base = self.random.choice(BASES)
        return kind, self.changed(kind, base)

    def changed(self, kind: Kind, base: Json) -> Json:
        """An object of a kind, changed in one to three places."""
        made = copy.deepcopy(base)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self._change(made, schema.of(kind))
        return made

    def status(self, kind: Kind, base: Json) -> Json:
        """An object with another status."""
        return {**copy.deepcopy(base), "status": self._value((schema.of(kind).properties or {})["status"], 0)}

    def _change(self, here: Any, field: Field) -> None:
        """Set something somewhere inside of a value."""
        while True:
            inner, key = self._step(here, field)
            if inner is None:
                return
            there = key in here if isinstance(here, dict) else key < len(here)
            old = here[key] if there else None
            if isinstance(old, dict | list) and old and self.random.random() < 0.75:
                here, field = old, inner
                continue
            new = self._value(inner, 0)
            if isinstance(here, list) and key == len(here):
                here.append(new)
            else:
                here[key] = new
            return

    def _step(self, here: Any, field: Field) -> tuple[Field | None, Any]:
        """A place inside of a value, and what may be there."""
        if field.properties is not None and isinstance(here, dict):
            keys = [key for key in field.properties if key not in _UNTOUCHED]
            there = [key for key in keys if key in here]
            if not keys:
                return None, None
            key = self.random.choice(there if there and self.random.random() < 0.6 else keys)
            return field.properties[key], key
        if field.items is not None and isinstance(here, list):
            return field.items, self.random.randrange(len(here) + 1)
        if field.values is not None and isinstance(here, dict):
            return field.values, self._key(field.values)
        return None, None

    def _key(self, values: Field) -> str:
        return self.random.choice(_RESOURCES if values.type == "quantity" else _WORDS)

    def _value(self, field: Field, depth: int) -> Any:
        """A value that may stand in a field; rarely one that may not."""
        if self.random.random() < 0.02:
            return self.random.choice(_WRONG)
        if field.properties is not None:
            keys = [key for key in field.properties if key not in _UNTOUCHED]
            count = self.random.choice((0, 1, 1, 2, 3)) if depth < 6 else 0
            chosen = set(self.random.sample(keys, min(count, len(keys))))
            chosen |= {key for key in field.required if key in field.properties and self.random.random() < 0.8}
            return {key: self._value(field.properties[key], depth + 1) for key in sorted(chosen)}
        if field.items is not None:
            return [self._value(field.items, depth + 1) for _ in range(self.random.choice((1, 1, 2)))]
        if field.values is not None:
            return {
                self._key(field.values): self._value(field.values, depth + 1)
                for _ in range(self.random.choice((1, 1, 2)))
            }
        return self._scalar(field)

    def _scalar(self, field: Field) -> Any:
        match field.type, field.format:
            case "string", "date-time":
                return self.random.choice(_TIMES)
            case "string", "micro-time":
                return self.random.choice(_FINE_TIMES)
            case "string", "byte":
                return self.random.choice(_BYTES)
            case "boolean", _:
                return self.random.random() < 0.5
            case "integer", _:
                return self.random.choice(_NUMBERS)
            case "quantity", _:
                return self.random.choice(_AMOUNTS)
            case "int-or-string", _:
                return self.random.choice((*_NUMBERS, *_WORDS))
        return self.random.choice(_WORDS)
