"""What an event must tell.

The two APIs name fields differently; here they are told by the names of the one that was asked.
"""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import metadata, names

Json = dict[str, Any]

_OLD = {"regarding": "involvedObject", "reportingController": "reportingComponent", "note": "message"}
_KEPT = (
    ("regarding", "involvedObject"), ("reason", "reason"), ("note", "message"), ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"), ("reason", "reason"), ("type", "type"), ("eventTime", "eventTime"),
    ("action", "action"), ("related", "related"), ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)  # fmt: skip
_EMPTY = {
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
    "eventTime": None,
    "related": None,
    "deprecatedCount": 0,
}
_REFERENCE = {
    "kind": "Kind", "namespace": "Namespace", "name": "Name", "uid": "UID", "apiVersion": "APIVersion",
    "resourceVersion": "ResourceVersion", "fieldPath": "FieldPath",
}  # fmt: skip
_STRUCTS = {
    "regarding": _REFERENCE,
    "related": _REFERENCE,
    "deprecatedSource": {"component": "Component", "host": "Host"},
}


def core(problems: Problems, event: Json) -> None:
    """Of an event of the old API."""
    _both(problems, event, _OLD)


def creation(problems: Problems, event: Json) -> None:
    """Of a new event of the new API, which is stricter."""
    _both(problems, event, {})
    metadata.creation(problems, event["metadata"], True, names.subdomain_name)
    _series(problems, event)
    if not event.get("eventTime"):
        problems.append(problem.required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        problems.append(problem.invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    for key in ("FirstTimestamp", "LastTimestamp", "Count"):
        if event.get(f"deprecated{key}"):
            problems.append(problem.invalid(key[0].lower() + key[1:], "", "needs to be unset"))
    if any(event.get("deprecatedSource", {}).values()):
        problems.append(problem.invalid("source", "", "needs to be unset"))


def update(problems: Problems, new: Json, old: Json) -> None:
    """Of an event of the new API that is written again: only its series goes on."""
    _both(problems, new, {})
    metadata.update(problems, new["metadata"], old["metadata"])
    if new.get("series") != old.get("series"):
        _series(problems, new)
    for key, told in _KEPT:
        value = _shown(key, new.get(key))
        if value != _shown(key, old.get(key)):
            problems.append(problem.invalid(told, value, problem.IMMUTABLE))


def _shown(key: str, value: Any) -> Any:
    """A value as it is told: structs by the names that their fields have in Go."""
    if key in _STRUCTS and (value is not None or key != "related"):
        return {told: (value or {}).get(name, "") for name, told in _STRUCTS[key].items()}
    return value or _EMPTY.get(key, "")


def _both(problems: Problems, event: Json, named: dict[str, str]) -> None:
    """The rules of both; `named` are the fields' names where they are the old ones."""

    def get(key: str) -> Any:
        return event.get(named.get(key, key)) or ""

    namespace = event["metadata"].get("namespace", "")
    about = (get("regarding") or {}).get("namespace", "")
    if not event.get("eventTime"):
        wrong = namespace != about if about else namespace not in ("", "default")
    else:
        wrong = not about and namespace not in ("default", "kube-system")
    if wrong:
        problems.append(problem.invalid("involvedObject.namespace", about, "does not match event.namespace"))
    if event.get("eventTime"):
        _new(problems, named.get("reportingController", "reportingController"), get)
    problem.each(problems, "namespace", namespace, names.dns_subdomain(namespace))


def _new(problems: Problems, controller_field: str, get: Any) -> None:
    controller = get("reportingController")
    if not controller:
        problems.append(problem.required(controller_field))
    problem.each(problems, controller_field, controller, names.label_key(controller))
    for key in ("reportingInstance", "action", "reason"):
        text = get(key)
        if not text:
            problems.append(problem.required(key))
        if len(text.encode()) > 128:
            problems.append(problem.invalid(key, "", "can have at most 128 characters"))
    if len(get("note").encode()) > 1024:
        problems.append(problem.invalid("message", "", "can have at most 1024 characters"))


def _series(problems: Problems, event: Json) -> None:
    series = event.get("series")
    if series is not None:
        if series.get("count", 0) < 2:
            problems.append(problem.invalid("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            problems.append(problem.required("series.lastObservedTime"))
