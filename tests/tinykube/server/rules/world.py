"""A small cluster for the rules to look at, and how they answer."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.support.custom import CUSTOM
from tests.support.wording import compared
from tests.tinykube.server.rules.cases import Case
from tests.tinykube.server.rules.objects import changed
from tinykube.server import kinds, rules
from tinykube.server.kinds import KINDS, Kind
from tinykube.status import ApiError

Json = dict[str, Any]

_NAMESPACES = ("default", "dying", "kube-system")

# What is there before any case: created in a real API server too.
PRIORITY_CLASSES: list[Json] = [
    {"metadata": {"name": "system-node-critical"}, "value": 2000001000, "preemptionPolicy": "PreemptLowerPriority"},
    {"metadata": {"name": "important"}, "value": 100, "preemptionPolicy": "PreemptLowerPriority"},
    {"metadata": {"name": "patient"}, "value": 7, "preemptionPolicy": "Never"},
]


class World:
    """Stored objects, as admission sees them."""

    kinds = (*KINDS, *CUSTOM)

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str, str], Json] = {}
        for name in _NAMESPACES:
            phase = "Terminating" if name == "dying" else "Active"
            self.put(kinds.NAMESPACE, {"metadata": {"name": name}, "status": {"phase": phase}})
        self.put(kinds.SERVICE_ACCOUNT, {"metadata": {"name": "default", "namespace": "default"}})
        for each in PRIORITY_CLASSES:
            self.put(kinds.PRIORITY_CLASS, each)
        kubernetes = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIPs": ["10.96.0.1"]}}
        self.put(kinds.SERVICE, kubernetes)

    def put(self, kind: Kind, object: Json) -> None:
        """Store an object."""
        meta = object["metadata"]
        self.objects[kind, meta.get("namespace", ""), meta["name"]] = object

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return self.objects.get((kind, namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Json]:
        found = [(key, each) for key, each in self.objects.items() if key[0] == kind]
        return [each for key, each in found if namespace in ("", key[1])]


def body(case: Case) -> bytes:
    """The content of the case's first request."""
    return case.object if isinstance(case.object, bytes) else json.dumps(case.object).encode()


def answer(
    case: Case, world: World | None = None, *, dry_run: bool = False, stored: list[tuple[Json, Json]] | None = None
) -> Json:
    """What the rules say: the stored object, or the refusal.  What was stored before goes to `stored`, with a copy."""
    world = world or World()
    try:
        given, _ = rules.read(case.kind, body(case), "Strict")
        created = rules.create(case.kind, with_system_fields(given, case.kind), world, dry_run=dry_run)
        if case.then is None:
            return {"code": 201, "object": told(created)}
        created["metadata"]["resourceVersion"] = "1"
        if stored is not None:
            stored.append((created, copy.deepcopy(created)))
        given, _ = rules.read(case.kind, changed(created, case.then), "Strict")
        return {"code": 200, "object": told(rules.update(case.kind, given, created, world, case.subresource))}
    except ApiError as error:
        return refusal(error.status())


def refusal(status: Json) -> Json:
    """What of a Status is compared: causes in no order, since maps have none."""
    found: Json = {key: status[key] for key in ("code", "reason") if key in status}
    details = dict(status.get("details", {}))
    causes = details.pop("causes", [])
    found["details"] = details
    if causes and status.get("reason") == "Invalid":
        # Of a difference between specs only the first line is the same.
        lines = [
            [each.get("field", ""), each["reason"], compared(each["message"].partition("\n")[0])] for each in causes
        ]
        found["causes"] = sorted(lines)
        found["message"] = status["message"].split(" is invalid: ")[0]
    else:
        found["causes"] = causes
        found["message"] = compared(status["message"])
    return found


def told(object: Json) -> Json:
    """What of an object is compared: not what differs from one server to the next, nor what controllers write."""
    hidden = ("uid", "creationTimestamp", "resourceVersion", "managedFields")
    meta = {key: value for key, value in object["metadata"].items() if key not in hidden}
    shown = {**object, "metadata": meta}
    if object["kind"] == "ResourceQuota":
        shown["status"] = {}
    for condition in shown.get("status", {}).get("conditions", ()):
        if condition.get("reason") == "SchedulingGated":
            shown["status"] = {**shown["status"], "conditions": [{**condition, "lastTransitionTime": None}]}
    return shown


def with_system_fields(object: Json, kind: Kind) -> Json:
    """As the registry sets them before the rules are asked."""
    hidden = ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "" if kind.namespaced else "namespace")
    meta = {key: value for key, value in object["metadata"].items() if key not in hidden}
    meta |= {"uid": "11111111-1111-1111-1111-111111111111", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if kind.namespaced:
        meta.setdefault("namespace", "default")
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"] + "x7x7x"
    return {**object, "metadata": meta}
