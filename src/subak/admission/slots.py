"""What a new pod needs for nodes where the container runtime does not ask our agent (`dialects.downward`).

    resources   one `subak.io/slot` in each container that gets cards by variables; other kubelets ignore it
    env         those variables, each of which refers to an annotation that comes with the Binding

A container of the pod that asks for no cards must see none, whatever its image says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from subak.dialects import downward
from subak.dialects.interpreter import Interpreter
from subak.model import manifest, variables

Json = dict[str, Any]


def slotted(interpreter: Interpreter, pod: Json) -> Json:
    """The reviewed pod with slots and variables.  Done again, it changes nothing."""
    lean = msgspec.convert(pod, manifest.Pod)
    meant = interpreter.variables(lean)
    if not any(meant):
        return pod
    taken: set[int] = set().union(*map(variables.numbers, lean.containers))
    containers = [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
    changed = []
    for position, (container, own, env) in enumerate(zip(containers, lean.containers, meant, strict=True)):
        if env:
            number = min(variables.numbers(own), default=None)
            if number is None:
                number = _free(position, taken)
                taken.add(number)
            changed.append(_with_slot(container, downward.added(own, number, env)))
        elif downward.VISIBLE in {name for each in meant for name in each}:
            changed.append(_with_env(container, {downward.VISIBLE: {"value": downward.VOID}}))
        else:
            changed.append(container)
    early = len(pod["spec"].get("initContainers") or ())
    spec = {**pod["spec"], "containers": changed[early:]}
    if early:
        spec["initContainers"] = changed[:early]
    return {**pod, "spec": spec}


def _free(position: int, taken: set[int]) -> int:
    """The number of a container: its position, unless another webhook has moved one there that has it already."""
    number = position
    while number in taken:
        number += 1
    return number


def _with_slot(container: Json, keys: Mapping[str, str]) -> Json:
    resources = container.get("resources") or {}
    slot = {variables.SLOT: "1"}
    amounts = {kind: {**(resources.get(kind) or {}), **slot} for kind in ("limits", "requests")}
    env = {name: {"valueFrom": {"fieldRef": _reference(key)}} for name, key in keys.items()}
    return _with_env({**container, "resources": {**resources, **amounts}}, env)


def _reference(key: str) -> Json:
    return {"apiVersion": "v1", "fieldPath": variables.path(key)}


def _with_env(container: Json, env: Mapping[str, Json]) -> Json:
    """The container with these variables instead of its own of the same names."""
    if not env:
        return container
    kept = [each for each in container.get("env") or () if each["name"] not in env]
    return {**container, "env": [*kept, *({"name": name, **source} for name, source in env.items())]}
