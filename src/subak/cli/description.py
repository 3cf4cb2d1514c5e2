"""An object in detail, in the order and with the headings of kubectl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Fields = list[tuple[str, Any]]
"""Headings, each with a text, with several lines, or with further fields below it."""

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HIDDEN = ("managedFields", "uid", "resourceVersion", "name", "namespace", "labels", "annotations")


def lines(fields: Fields, depth: int = 0) -> Iterator[str]:
    """The fields as lines of text, with aligned values."""
    width = max((len(heading) for heading, value in fields if not _below(value)), default=0) + 2
    margin = "  " * depth
    for heading, value in fields:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            yield f"{margin}{heading}:"
            yield from lines(value, depth + 1)
        elif isinstance(value, list):
            first, *others = value or ["<none>"]
            yield f"{margin}{heading + ':':<{width}} {first}".rstrip()
            for other in others:
                yield f"{margin}{'':<{width}} {other}".rstrip()
        else:
            yield f"{margin}{heading + ':':<{width}} {value}".rstrip()


def _below(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def of(object: dict[str, Any]) -> Fields:
    """The fields that describe an object."""
    metadata = object["metadata"]
    fields: Fields = [("Name", metadata["name"])]
    if "namespace" in metadata:
        fields.append(("Namespace", metadata["namespace"]))
    fields += [("Labels", _pairs(metadata.get("labels"))), ("Annotations", _pairs(metadata.get("annotations"), ": "))]
    match object.get("kind"):
        case "Pod":
            return fields + _pod(object)
        case "Node":
            return fields + _node(object)
        case "Deployment" | "ReplicaSet" | "DaemonSet" | "Job":
            return fields + _workload(object)
        case _:
            rest = {key: value for key, value in object.items() if key != "metadata"}
            rest["metadata"] = {key: value for key, value in metadata.items() if key not in _HIDDEN}
            return fields + _anything(rest)


def events(found: Sequence[dict[str, Any]], age: Mapping[int, str]) -> list[list[str]]:
    """The events of an object as a table, `age` by position."""
    rows = [["Type", "Reason", "Age", "From", "Message"]]
    for position, event in enumerate(found):
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        when = age[position] if count == 1 else f"{age[position]} (x{count})"
        source = event.get("reportingComponent") or (event.get("source") or {}).get("component", "")
        rows.append([event.get("type", ""), event.get("reason", ""), when, source, event.get("message", "").strip()])
    return rows


def _pairs(values: Mapping[str, str] | None, between: str = "=") -> list[str]:
    return [f"{key}{between}{value}" for key, value in sorted((values or {}).items())]


def _pod(pod: dict[str, Any]) -> Fields:
    spec, status = pod.get("spec", {}), pod.get("status", {})
    node = spec.get("nodeName", "")
    host = status.get("hostIP", "")
    fields: Fields = [
        ("Scheduler", spec.get("schedulerName", "")),
        ("Priority", str(spec.get("priority", 0))),
        ("Node", f"{node}/{host}" if node and host else node or "<none>"),
        ("Start Time", status.get("startTime", "<none>")),
        ("Status", "Terminating" if pod["metadata"].get("deletionTimestamp") else status.get("phase", "")),
        ("IP", status.get("podIP", "")),
    ]
    fields += [(name, status[key]) for name, key in (("Reason", "reason"), ("Message", "message")) if status.get(key)]
    for heading, containers, states in (
        ("Init Containers", spec.get("initContainers"), status.get("initContainerStatuses")),
        ("Containers", spec.get("containers"), status.get("containerStatuses")),
    ):
        known = {state["name"]: state for state in states or ()}
        if containers:
            fields.append(
                (heading, [(each["name"], _container(each, known.get(each["name"], {}))) for each in containers])
            )
    fields.append(("Conditions", [(each["type"], _condition(each)) for each in status.get("conditions", ())]))
    fields.append(("Volumes", [_volume(each) for each in spec.get("volumes", ())]))
    fields += [
        ("QoS Class", status.get("qosClass", "")),
        ("Node-Selectors", _pairs(spec.get("nodeSelector"))),
        ("Tolerations", [_toleration(each) for each in spec.get("tolerations", ())]),
    ]
    return fields


def _container(container: dict[str, Any], status: dict[str, Any]) -> Fields:
    fields = list(_state("State", status.get("state", {})))
    if status.get("lastState"):
        fields += list(_state("Last State", status["lastState"]))
    fields += [("Ready", str(status.get("ready", False))), ("Restart Count", str(status.get("restartCount", 0)))]
    return _wanted(container, fields)


def _wanted(container: dict[str, Any], state: Fields | None = None) -> Fields:
    """The fields of a container's spec, with those of its state in between."""
    fields: Fields = [("Image", container.get("image", ""))]
    for name in ("command", "args"):
        if container.get(name):
            fields.append((name.capitalize(), [part for text in container[name] for part in text.splitlines()]))
    fields += state or []
    for name in ("limits", "requests"):
        amounts = container.get("resources", {}).get(name)
        if amounts:
            fields.append((name.capitalize(), [(key, str(value)) for key, value in sorted(amounts.items())]))
    fields.append(("Environment", [_variable(each) for each in container.get("env", ())]))
    mounts = container.get("volumeMounts", ())
    fields.append(
        ("Mounts", [f"{m['mountPath']} from {m['name']} ({'ro' if m.get('readOnly') else 'rw'})" for m in mounts])
    )
    return fields


def _state(heading: str, state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, detail in state.items():
        yield heading, name.capitalize()
        for key in ("reason", "message", "exitCode", "startedAt", "finishedAt"):
            if detail.get(key) not in (None, ""):
                yield "  " + _WORD.sub(" ", key).title(), str(detail[key])
        return
    yield heading, "Waiting"


def _variable(variable: dict[str, Any]) -> str:
    if "valueFrom" in variable:
        ((source, detail),) = list(variable["valueFrom"].items())[:1]
        return f"{variable['name']}: from {source} {', '.join(f'{key} {value}' for key, value in detail.items())}"
    return f"{variable['name']}: {variable.get('value', '')}"


def _condition(condition: dict[str, Any]) -> str:
    detail = ": ".join(part for part in (condition.get("reason", ""), condition.get("message", "")) if part)
    return f"{condition['status']} ({detail})" if detail else str(condition["status"])


def _volume(volume: dict[str, Any]) -> tuple[str, Any]:
    kinds = [(key, value) for key, value in volume.items() if key != "name"]
    return volume["name"], [(_WORD.sub(" ", key), _inline(value)) for key, value in kinds] or "<none>"


def _toleration(toleration: dict[str, Any]) -> str:
    key, value = toleration.get("key", ""), toleration.get("value", "")
    text = f"{key}={value}" if value else key
    text += f":{toleration['effect']}" if toleration.get("effect") else ""
    if toleration.get("operator") == "Exists":
        text += " op=Exists"
    return text + (f" for {toleration['tolerationSeconds']}s" if "tolerationSeconds" in toleration else "")


def _workload(workload: dict[str, Any]) -> Fields:
    spec, status = workload["spec"], workload.get("status", {})
    template = spec["template"]
    selector = spec.get("selector", {})
    lines = [_inline(each) for each in selector.get("matchExpressions", ())]
    settings = {key: value for key, value in spec.items() if key not in ("template", "selector")}
    counts = {key: value for key, value in status.items() if key != "conditions"}
    return [
        ("Selector", [*_pairs(selector.get("matchLabels")), *lines]),
        ("Spec", _anything(settings)),
        ("Status", _anything(counts)),
        ("Conditions", [(each["type"], _condition(each)) for each in status.get("conditions", ())]),
        ("Pod Template", _template(template)),
    ]


def _template(template: dict[str, Any]) -> Fields:
    meta, spec = template.get("metadata", {}), template.get("spec", {})
    fields: Fields = [
        ("Labels", _pairs(meta.get("labels"))),
        ("Annotations", _pairs(meta.get("annotations"), ": ")),
        ("Scheduler", spec.get("schedulerName", "")),
    ]
    for heading, key in (("Init Containers", "initContainers"), ("Containers", "containers")):
        if spec.get(key):
            fields.append((heading, [(each["name"], _wanted(each)) for each in spec[key]]))
    return [
        *fields,
        ("Volumes", [_volume(each) for each in spec.get("volumes", ())]),
        ("Node-Selectors", _pairs(spec.get("nodeSelector"))),
        ("Tolerations", [_toleration(each) for each in spec.get("tolerations", ())]),
    ]


def _node(node: dict[str, Any]) -> Fields:
    spec, status = node.get("spec", {}), node.get("status", {})
    taints = [f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in spec.get("taints", ())]
    fields: Fields = [
        ("Taints", taints),
        ("Unschedulable", str(spec.get("unschedulable", False)).lower()),
        ("Conditions", [(each["type"], _condition(each)) for each in status.get("conditions", ())]),
        ("Addresses", [(each["type"], each["address"]) for each in status.get("addresses", ())]),
    ]
    for name in ("capacity", "allocatable"):
        fields.append((name.capitalize(), [(key, str(value)) for key, value in sorted(status.get(name, {}).items())]))
    return fields


def _anything(content: Mapping[str, Any]) -> Fields:
    fields: Fields = []
    for key, value in content.items():
        heading = "API Version" if key == "apiVersion" else _WORD.sub(" ", key[:1].upper() + key[1:])
        if isinstance(value, Mapping):
            if value:
                fields.append((heading, _anything(value)))
        elif isinstance(value, list):
            fields.append((heading, _listed(value)))
        else:
            fields.append((heading, str(value).splitlines() or ""))
    return fields


def _listed(values: Iterable[Any]) -> list[Any]:
    values = list(values)
    if values and all(isinstance(value, Mapping) for value in values):
        return [(str(value.get("name", position)), _anything(value)) for position, value in enumerate(values)]
    return [_inline(value) for value in values]


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_inline(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(_inline(each) for each in value)
    return str(value)
