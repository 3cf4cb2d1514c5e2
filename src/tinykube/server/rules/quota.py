"""What a namespace may have, and what it has.

Each question counts what is stored, so that the answer can never be wrong.  A quota counts pods
that are not finished, with what they request and are limited to, or objects of any kind.
"""

from __future__ import annotations

from typing import Any

from tinykube.server import errors, kinds
from tinykube.server.kinds import Kind
from tinykube.server.rules import amounts, scalars
from tinykube.server.rules.admission import View
from tinykube.server.rules.amounts import Amounts
from tinykube.server.rules.qos import qos_class
from tinykube.server.rules.validation.resources import is_extended, is_native

Json = dict[str, Any]

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_BOUND_TO_ASK = {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
_BY_NAME = (kinds.SECRET, kinds.CONFIG_MAP, kinds.RESOURCE_QUOTA)


def creation(kind: Kind, object: Json, view: View) -> None:
    """Refuse an object that would take more than its namespace may have."""
    if kind is kinds.EVENT or not kind.namespaced:
        return
    namespace = object["metadata"]["namespace"]
    for quota in view.list(kinds.RESOURCE_QUOTA, namespace):
        _check(quota, kind, object, view)


def status(quota: Json, view: View) -> Json:
    """What the status of a quota should be."""
    hard, namespace = quota["spec"].get("hard", {}), quota["metadata"]["namespace"]
    used: Amounts = {}
    for kind in view.kinds:
        if kind.namespaced and kind is not kinds.EVENT:
            used.update(_used(quota, kind, _tracked(kind, hard), namespace, view))
    return {"hard": dict(hard), "used": used} if hard else {}


def _check(quota: Json, kind: Kind, object: Json, view: View) -> None:
    hard, meta = quota["spec"].get("hard", {}), object["metadata"]
    tracked = _tracked(kind, hard)
    if not tracked or not _matches(quota, kind, object):
        return
    name = quota["metadata"]["name"]
    if kind is kinds.POD:
        missing = _unasked(object["spec"], tracked)
        if missing:
            raise errors.forbidden(kind, meta["name"], f"failed quota: {name}: must specify {missing}")
    wanted = {key: amount for key, amount in usage(kind, object).items() if key in tracked and scalars.nanos(amount)}
    if not wanted:
        return
    used = _used(quota, kind, list(wanted), meta["namespace"], view)
    over = [key for key in wanted if _exceeds(used[key], wanted[key], hard[key])]
    if over:
        amounts = (_printed({key: each[key] for key in over}) for each in (wanted, used, hard))
        words = "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(name, *amounts)
        raise errors.forbidden(kind, meta["name"], words)


def usage(kind: Kind, object: Json) -> Amounts:
    """What an object counts for, by the names that quotas use."""
    counted: Amounts = {f"count/{kind.resource}": "1"}
    if kind is kinds.POD:
        if object["status"].get("phase") not in ("Failed", "Succeeded"):
            counted.update(_compute(amounts.requests(object), amounts.limits(object)))
    elif kind is kinds.SERVICE:
        counted.update(_service(object["spec"]))
    elif kind in _BY_NAME:
        counted[kind.plural] = "1"
    return counted


def _exceeds(used: str, wanted: str, hard: str) -> bool:
    return scalars.nanos(used) + scalars.nanos(wanted) > scalars.nanos(hard)


def _used(quota: Json, kind: Kind, names: list[str], namespace: str, view: View) -> Amounts:
    total = dict.fromkeys(names, "0")
    if names:
        for each in view.list(kind, namespace):
            if _matches(quota, kind, each):
                counted = usage(kind, each)
                for name in names:
                    if name in counted:
                        total[name] = scalars.sum_of(total[name], counted[name])
    return total


def _tracked(kind: Kind, hard: Amounts) -> list[str]:
    """Those of a quota's names that a kind counts for."""
    own = {f"count/{kind.resource}"}
    if kind is kinds.POD:
        own |= {"pods", *_COMPUTE, *(f"{each}.{name}" for each in ("requests", "limits") for name in _COMPUTE)}
    elif kind is kinds.SERVICE:
        own |= {"services", "services.nodeports", "services.loadbalancers"}
    elif kind in _BY_NAME:
        own.add(kind.plural)
    return sorted(name for name in hard if name in own or (kind is kinds.POD and _is_requested(name)))


def _is_requested(name: str) -> bool:
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    return name.startswith("requests.") and not is_native(name)


def _compute(requests: Amounts, limits: Amounts) -> Amounts:
    counted: Amounts = {"pods": "1"}
    for name in _COMPUTE:
        if name in requests:
            counted[name] = counted[f"requests.{name}"] = requests[name]
        if name in limits:
            counted[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith("hugepages-"):
            counted[name] = counted[f"requests.{name}"] = amount
        elif is_extended(name):
            counted[f"requests.{name}"] = amount
    return counted


def _service(spec: Json) -> Amounts:
    kind, ports = spec.get("type"), spec.get("ports", ())
    on_nodes = 0
    if kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False):
        on_nodes = len(ports)
    elif kind == "LoadBalancer":
        on_nodes = sum(bool(port.get("nodePort")) for port in ports)
    return {
        "services": "1",
        "services.nodeports": str(on_nodes),
        "services.loadbalancers": "1" if kind == "LoadBalancer" else "0",
    }


def _unasked(spec: Json, tracked: list[str]) -> str:
    """What each container must say because a quota counts it, and does not."""
    own = spec.get("resources", {})
    if any(amounts.is_pod_level(name) for each in own.values() if isinstance(each, dict) for name in each):
        return ""
    missing: dict[str, set[str]] = {}
    for container in [*(spec.get("containers") or ()), *spec.get("initContainers", ())]:
        given = container.get("resources", {})
        asked = _compute(given.get("requests", {}), given.get("limits", {}))
        for name in _BOUND_TO_ASK.intersection(tracked) - asked.keys():
            missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def _matches(quota: Json, kind: Kind, object: Json) -> bool:
    spec = quota["spec"]
    lines = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes", ())]
    lines += spec.get("scopeSelector", {}).get("matchExpressions", ())
    return not lines or (kind is kinds.POD and all(_in_scope(line, object) for line in lines))


def _in_scope(line: Json, pod: Json) -> bool:
    spec = pod["spec"]
    match line["scopeName"]:
        case "Terminating":
            return bool(spec.get("activeDeadlineSeconds", -1) >= 0)
        case "NotTerminating":
            return bool(spec.get("activeDeadlineSeconds", -1) < 0)
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            return _selects(line, spec.get("priorityClassName", ""))
        case "CrossNamespacePodAffinity":
            return _crosses(spec.get("affinity", {}))
    return False


def _selects(line: Json, name: str) -> bool:
    match line.get("operator"):
        case "In":
            return name in line.get("values", ())
        case "NotIn":
            return name not in line.get("values", ())
        case "Exists":
            return bool(name)
    return not name


def _crosses(affinity: Json) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind, {})
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution", ())
        for term in [*required, *(each.get("podAffinityTerm", {}) for each in preferred)]:
            if term.get("namespaces") or "namespaceSelector" in term:
                return True
    return False


def _printed(given: Amounts) -> str:
    return ",".join(f"{name}={given[name]}" for name in sorted(given))
