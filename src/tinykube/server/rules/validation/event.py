"""What an event must say.  One with an `eventTime` is of the newer sort, which has to say more."""

from __future__ import annotations

from typing import Any

from tinykube.server.rules import problem
from tinykube.server.rules.problem import Problems
from tinykube.server.rules.validation import names

Json = dict[str, Any]


def check(problems: Problems, event: Json) -> None:
    """Of an event, new or written again."""
    namespace = event["metadata"].get("namespace", "")
    about = event.get("involvedObject", {}).get("namespace", "")
    if not event.get("eventTime"):
        wrong = namespace != about if about else namespace not in ("", "default")
    else:
        wrong = not about and namespace not in ("default", "kube-system")
    if wrong:
        problems.append(problem.invalid("involvedObject.namespace", about, "does not match event.namespace"))
    if event.get("eventTime"):
        _newer(problems, event)
    problem.each(problems, "namespace", namespace, names.dns_subdomain(namespace))


def _newer(problems: Problems, event: Json) -> None:
    controller = event.get("reportingComponent", "")
    if not controller:
        problems.append(problem.required("reportingComponent"))
    problem.each(problems, "reportingComponent", controller, names.label_key(controller))
    for key in ("reportingInstance", "action", "reason"):
        text = event.get(key, "")
        if not text:
            problems.append(problem.required(key))
        if len(text.encode()) > 128:
            problems.append(problem.invalid(key, "", "can have at most 128 characters"))
    if len(event.get("message", "").encode()) > 1024:
        problems.append(problem.invalid("message", "", "can have at most 1024 characters"))
