"""How many pods a Deployment or a ReplicaSet is to have, as an object: `deployments/NAME/scale`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinykube.server import errors, selectors
from tinykube.server.kinds import Kind
from tinykube.server.options import WriteOptions
from tinykube.server.registry import Registry, Target, check_uid
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation.workload import not_negative
from tinykube.server.store import Stored, encode

Json = dict[str, Any]

SCALE = Kind("autoscaling", "v1", "Scale", "scales")
_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def shown(stored: Stored) -> Stored:
    """The scale of a stored object."""
    object = stored.object
    scale: Json = {
        "kind": SCALE.kind,
        "apiVersion": SCALE.api_version,
        "metadata": {key: object["metadata"][key] for key in _METADATA if key in object["metadata"]},
        "spec": {"replicas": object["spec"]["replicas"]} if object["spec"]["replicas"] else {},
        "status": {
            "replicas": object.get("status", {}).get("replicas", 0),
            "selector": selectors.text(object["spec"].get("selector")),
        },
    }
    return Stored(scale, stored.revision, encode(scale))


def write(registry: Registry, target: Target, change: Callable[[Json], Json], options: WriteOptions) -> Stored:
    """Change the scale of an object; `change` makes the next one of the one that is there."""

    def scaled(object: Json) -> Json:
        scale = change(shown(Stored(object, 0, b"")).object)
        meta, replicas = scale["metadata"], scale["spec"].get("replicas", 0)
        problems: Problems = []
        not_negative(problems, "spec.replicas", replicas)
        if problems:
            raise errors.invalid(SCALE, target.name, problems)
        check_uid(target, object, meta.get("uid", ""))
        versioned = {**object["metadata"], "resourceVersion": meta.get("resourceVersion", "")}
        return {**object, "metadata": versioned, "spec": {**object["spec"], "replicas": replicas}}

    return shown(registry.patch(target, scaled, options))
