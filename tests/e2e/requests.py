"""Requests of all kinds, drawn by chance: sensible ones, and ones that are a little wrong.

A seed always gives the same requests.  Few names are used, so that requests meet each other: what is created is read,
changed by one way and then by another, bound, and deleted; some of it in the wrong order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]

NAMES = ("a", "b", "c")
LABELS = ("x", "y", "app.io/z")
PATCHES = ("MERGE", "STRATEGIC", "APPLY", "JSON")

# What stands where something else belongs.
ODD: tuple[Any, ...] = (
    None, "", "x", "A_b", "a.b/c", " ", "-1", "1.5", "1Gi", 0, 1, -1, 1.5, 10**9, True, False, [], {}, ["x"], [None],
    {"x": "y"}, {"x": None}, [{}], "é", "a" * 300,
)  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """A request as the steps of a transcript have it."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


def requests(seed: int, count: int) -> Iterator[Sent]:
    """So many requests."""
    chance = Random(seed)
    for _ in range(count):
        yield chance.choices(*zip(*_WAYS, strict=True))[0](chance)


def _create(chance: Random) -> Sent:
    plural = _kind(chance)
    object = _odd(chance, _object(chance, plural))
    metadata = object.get("metadata")
    if plural in _GLOBAL and isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
        metadata["name"] = f"NS-{metadata['name'].removeprefix('NS-')}"  # others' objects are left alone
    return Sent("POST", _path(chance, plural, ""), object)


def _update(chance: Random) -> Sent:
    plural = _kind(chance)
    object = _object(chance, plural)
    return Sent("PUT", _path(chance, plural, object["metadata"]["name"]), _odd(chance, object))


def _patch(chance: Random) -> Sent:
    plural = _kind(chance)
    method = chance.choice(PATCHES)
    object = _object(chance, plural)
    path = _path(chance, plural, object["metadata"]["name"])
    if method == "APPLY":
        manager = chance.choice(("one", "two"))
        path += f"{'&' if '?' in path else '?'}fieldManager={manager}{chance.choice(('', '&force=true'))}"
        return Sent(method, path, _odd(chance, object))
    if method == "JSON":
        return Sent(method, path, _operations(chance, object))
    return Sent(method, path, _odd(chance, _part(chance, object)))


def _status(chance: Random) -> Sent:
    plural, status = chance.choice(_STATUS)
    path = _path(chance, plural, chance.choice(NAMES), "status")
    return Sent(chance.choice(("MERGE", "STRATEGIC")), path, _odd(chance, {"status": copy.deepcopy(status)}))


def _read(chance: Random) -> Sent:
    plural = _kind(chance)
    method = chance.choice(("GET", "GET", "TABLE"))
    if chance.random() < 0.5:
        return Sent(method, f"{plural}/{_name(chance, plural)}")
    queries = ("", "?labelSelector=x", "?labelSelector=x=1", "?labelSelector=y notin (1)", "?labelSelector=!x")
    own = "?fieldSelector=metadata.name=NS-a" if plural in _GLOBAL else "?fieldSelector=metadata.name=a"
    return Sent(method, plural + (own if plural in _GLOBAL else chance.choice((*queries, own))))


def _select(chance: Random) -> Sent:
    """A list by selectors that may make no sense."""
    plural = chance.choice([each for each in _KINDS if each not in _GLOBAL])
    if chance.random() < 0.5:
        selector = "".join(chance.choice(_WORDS) for _ in range(chance.randint(1, 6)))
        return Sent("GET", f"{plural}?labelSelector={quote(selector)}")
    pairs = [chance.choice(_FIELDS) + chance.choice(("=", "==", "!=", "")) + chance.choice(("a", "NS", "", "x\\,y"))]
    return Sent("GET", f"{plural}?fieldSelector={quote(','.join(pairs * chance.randint(1, 2)), safe='-')}")


def _delete(chance: Random) -> Sent:
    plural = _kind(chance)
    options = chance.choice(("", "", "?dryRun=All", "?gracePeriodSeconds=0", "?gracePeriodSeconds=5"))
    return Sent("DELETE", f"{plural}/{_name(chance, plural)}{options}")


def _bind(chance: Random) -> Sent:
    name = chance.choice(NAMES)
    metadata = {"name": name, "annotations": {"gpu": chance.choice(("0", "1"))}}
    target = {"apiVersion": "v1", "kind": "Node", "name": f"NS-{chance.choice(NAMES)}"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Sent("POST", f"pods/{name}/binding", _odd(chance, binding))


def _ask(chance: Random) -> Sent:
    """A question about logs and programs, which no kubelet is needed to answer."""
    name = chance.choice(NAMES)
    return Sent("GET", f"pods/{name}/{chance.choice(('log', 'exec'))}?container=x&command=ls&stdout=true")


_Way = Callable[[Random], Sent]
_WAYS: tuple[tuple[_Way, int], ...] = (
    (_create, 8), (_update, 4), (_patch, 8), (_status, 2),
    (_read, 3), (_select, 2), (_delete, 2), (_bind, 1), (_ask, 1),
)  # fmt: skip

_WORDS = (
    "x",
    "y",
    "=",
    "==",
    "!=",
    "!",
    " in ",
    " notin ",
    "(1)",
    "(",
    ")",
    ",",
    "1",
    "app.io/z",
    "_",
    ">",
    "<",
    " ",
    "-",
)
_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.phase", "type", "reason", "x",
    "involvedObject.kind", "spec.type", "spec.schedulerName", "regarding.name", "source",
)  # fmt: skip

# Names and paths

_GLOBAL = ("nodes", "priorityclasses", "queues", "devices")
_KINDS = (
    "pods", "pods", "pods", "configmaps", "configmaps", "secrets", "services", "serviceaccounts", "leases", "nodes",
    "events", "priorityclasses", "podgroups", "queues", "devices",
    "deployments", "deployments", "replicasets", "daemonsets", "jobs", "jobs",
)  # fmt: skip


def _kind(chance: Random) -> str:
    return chance.choice(_KINDS)


def _name(chance: Random, plural: str) -> str:
    name = chance.choice(NAMES)
    return f"NS-{name}" if plural in _GLOBAL else name


def _path(chance: Random, plural: str, name: str, subresource: str = "") -> str:
    name = f"NS-{name}" if plural in _GLOBAL and name and not name.startswith("NS-") else name
    path = "/".join(each for each in (plural, name, subresource) if each)
    options = ("", "", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldValidation=Ignore")
    return path + chance.choice(options)


# Objects


def _object(chance: Random, plural: str) -> Json:
    """Something that the server would take."""
    metadata: Json = {"name": _name(chance, plural)}
    if chance.random() < 0.5:
        metadata["labels"] = {chance.choice(LABELS): chance.choice("12") for _ in range(2)}
    if chance.random() < 0.2:
        metadata["annotations"] = {"note": "something"}
    return {"metadata": metadata, **copy.deepcopy(_CONTENT[plural](chance))}


def _pod(chance: Random) -> Json:
    spec: Json = {"containers": [_container(chance, name) for name in chance.choice(("c", "cd"))]}
    for key in chance.sample(sorted(_POD_FIELDS), chance.randint(0, 3)):
        spec[key] = _POD_FIELDS[key]
    return {"spec": spec}


def _container(chance: Random, name: str) -> Json:
    found: Json = {"name": name, "image": chance.choice(("i", "i:1", "h:5000/x"))}
    for key in chance.sample(sorted(_CONTAINER_FIELDS), chance.randint(0, 2)):
        found[key] = _CONTAINER_FIELDS[key]
    return found


_POD_FIELDS: Json = {
    "nodeName": "NS-a",
    "restartPolicy": "Never",
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "terminationGracePeriodSeconds": 5,
    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}, {"name": "m", "configMap": {"name": "a"}}],
    "initContainers": [{"name": "i", "image": "i"}],
    "hostNetwork": True,
    "schedulerName": "subak",
    "activeDeadlineSeconds": 60,
    "securityContext": {"runAsUser": 1000, "runAsNonRoot": True},
    "schedulingGates": [{"name": "gate"}],
    "hostname": "h",
    "imagePullSecrets": [{"name": "s"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
            }
        }
    },
}
_CONTAINER_FIELDS: Json = {
    "command": ["sh", "-c", "true"],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "ports": [{"containerPort": 80, "name": "web"}],
    "resources": {"limits": {"cpu": "500m", "memory": "1Gi", "volcano.sh/gpu-memory": 1000}, "requests": {"cpu": 0.1}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
    "imagePullPolicy": "Never",
    "securityContext": {"privileged": True},
}


def _event(chance: Random) -> Json:
    about = {"kind": "Pod", "namespace": "NS", "name": chance.choice(NAMES)}
    return {"involvedObject": about, "reason": "R", "message": "m", "type": "Normal", "source": {"component": "c"}}


def _workload(chance: Random) -> Json:
    """A Deployment, ReplicaSet or DaemonSet: what differs between them is drawn by chance too."""
    spec: Json = {"selector": {"matchLabels": {"x": "1"}}, "template": _template(chance)}
    for key in chance.sample(sorted(_WORKLOAD_FIELDS), chance.randint(0, 2)):
        spec[key] = _WORKLOAD_FIELDS[key]
    return {"spec": spec}


def _job(chance: Random) -> Json:
    template = _template(chance)
    template["spec"]["restartPolicy"] = chance.choice(("Never", "OnFailure"))
    spec: Json = {"template": template}
    for key in chance.sample(sorted(_JOB_FIELDS), chance.randint(0, 2)):
        spec[key] = _JOB_FIELDS[key]
    return {"spec": spec}


def _template(chance: Random) -> Json:
    labels = {"x": "1", chance.choice(LABELS[1:]): chance.choice("12")}
    return {"metadata": {"labels": labels}, "spec": {"containers": [_container(chance, "c")]}}


_WORKLOAD_FIELDS: Json = {
    "replicas": 2,
    "minReadySeconds": 3,
    "revisionHistoryLimit": 4,
    "paused": True,
    "progressDeadlineSeconds": 60,
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 1}},
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
}
_JOB_FIELDS: Json = {
    "parallelism": 2,
    "completions": 3,
    "backoffLimit": 4,
    "activeDeadlineSeconds": 60,
    "ttlSecondsAfterFinished": 5,
}


_CONTENT: dict[str, Callable[[Random], Json]] = {
    "pods": _pod,
    "events": _event,
    "configmaps": lambda chance: {"data": {"k": chance.choice("12"), "l": "w"}},
    "secrets": lambda chance: {"stringData": {"k": chance.choice("12")}, "data": {"l": "eA=="}},
    "services": lambda chance: {"spec": {"selector": {"x": "1"}, "ports": [{"port": 80, "targetPort": "web"}]}},
    "serviceaccounts": lambda chance: {"imagePullSecrets": [{"name": "s"}]},
    "leases": lambda chance: {"spec": {"holderIdentity": chance.choice("12"), "leaseDurationSeconds": 5}},
    "nodes": lambda chance: {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
    "priorityclasses": lambda chance: {"value": 10, "description": "d"},
    "podgroups": lambda chance: {"spec": {"minMember": chance.choice((1, 2)), "minResources": {"cpu": 1}}},
    "queues": lambda chance: {"spec": {"weight": chance.choice((1, 2)), "capability": {"cpu": "2"}}},
    "deployments": _workload,
    "replicasets": _workload,
    "daemonsets": _workload,
    "jobs": _job,
    "devices": lambda chance: {"spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, "id": "x"}]}},
}
_STATUS: tuple[tuple[str, Json], ...] = (
    ("pods", {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    ("pods", {"containerStatuses": [{"name": "c", "ready": True, "image": "i", "imageID": "", "restartCount": 1}]}),
    ("pods", {"phase": "Succeeded", "podIP": "10.0.0.1"}),
    ("nodes", {"capacity": {"cpu": 4, "volcano.sh/gpu-memory": "3000"}, "addresses": [{"type": "Hostname"}]}),
    ("nodes", {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]}),
    ("queues", {"state": "Open", "pending": 1}),
    ("services", {"loadBalancer": {}}),
    ("deployments", {"replicas": 2, "readyReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}),
    ("replicasets", {"replicas": 1, "availableReplicas": 1, "readyReplicas": 1}),
    ("daemonsets", {"currentNumberScheduled": 1, "desiredNumberScheduled": 2}),
    ("jobs", {"active": 1, "startTime": "2024-01-01T00:00:00Z"}),
)

# What is a little wrong


def _odd(chance: Random, object: Json) -> Json:
    """Sometimes, something in it is not what it should be."""
    while chance.random() < 0.25:
        holder, key = _place(chance, object)
        what = chance.random()
        if what < 0.6:
            holder[key] = copy.deepcopy(chance.choice(ODD))
        elif what < 0.8 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif what < 0.8:
            holder[f"{key}x"] = holder[key]
        elif len(holder) > 1:
            del holder[key]
    return object


def _place(chance: Random, object: Json) -> tuple[Any, Any]:
    """Somewhere inside; the deeper, the likelier."""
    holder: Any = object
    while True:
        keys = list(range(len(holder))) if isinstance(holder, list) else list(holder)
        key = chance.choice(keys)
        below = holder[key]
        if not isinstance(below, dict | list) or not below or chance.random() < 0.15:
            return holder, key
        holder = below


def _part(chance: Random, object: Json) -> Json:
    """A patch: some of an object, with some of it taken away."""
    kept = {key: value for key, value in object.items() if key == "metadata" or chance.random() < 0.7}
    if chance.random() < 0.3:
        holder, key = _place(chance, kept)
        holder[key] = None
    return kept


def _operations(chance: Random, object: Json) -> list[Json]:
    found = []
    for _ in range(chance.randint(1, 2)):
        path: str = ""
        value: Any = object
        while isinstance(value, dict | list) and value and (not path or chance.random() < 0.8):
            key = chance.choice(list(range(len(value))) if isinstance(value, list) else list(value))
            path, value = f"{path}/{str(key).replace('/', '~1')}", value[key]
        operation = chance.choice(("add", "replace", "remove", "test"))
        odd = chance.choice(ODD) if chance.random() < 0.2 else value
        found.append({"op": operation, "path": path, **({} if operation == "remove" else {"value": odd})})
    return found
